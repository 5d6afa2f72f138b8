//! What a replica decides when a record arrives: apply it, or answer why not.
//!
//! Owns the order of the rules and nothing else: what is held, what was accepted lately and the fence are the caller's
//! to keep. Pure, and the whole of a replica's part in the protocol: it never compares anything but versions.
//!
//! Promises, given true arguments: a version answered [`StoreAnswer::Stale`] has not been accepted
//! here and never will be; a version once accepted is [`StoreAnswer::Accepted`] again for as long as
//! the caller remembers it; nothing older ever replaces something newer.
//!
//! It does *not* look at clocks (`clock.skew_max` is checked before), nor make anything durable:
//! [`Decision::Apply`] becomes `Accepted` when the commit has succeeded, and a record becomes visible
//! to readers and to this function only then.
//!
//! Source: `docs/explanation/consistency.md`, "The protocol".

use super::rules;
use crate::quorum::{Current, StoreAnswer};
use crate::version::Version;

/// What is known of the key without, or after, a look at the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownVersion {
    /// Nothing newer than the mark of the key's stripe is held or was ever accepted here, and the
    /// partition's GC watermark is not above the mark either. Costs no lookup.
    AtMost(Version),
    /// Exactly this.
    Exactly(Current),
}

/// Whether this key and version were accepted here within the last `retention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recent {
    /// They were, by whatever kind of accept, even if overwritten since.
    Accepted,
    /// They were not.
    NotAccepted,
    /// Unknown: the set had to drop some early.
    /// To be given only for what the set does not contain: what it contains was accepted.
    Unsure,
}

/// Where the record comes from, which decides whether the fence holds for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client's write, or a hint of one: a straggler if it is at or below the fence.
    Client,
    /// A reader's write-back, or repair: brings what some replica holds already, so it cannot bring
    /// a write back to life that the fence has shut out.
    Repair,
}

/// What to do with a `Store`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Write it; once durable, answer `Accepted` and remember it as recent.
    Apply,
    /// Write nothing, answer this.
    Answer(StoreAnswer),
    /// The mark does not decide it: read what is held and decide again with [`KnownVersion::Exactly`].
    LookUp,
}

/// The rules, in their order. `fence` is the node's, the same for all partitions; [`Version::ZERO`] before the first
/// round. `recent` is asked only when `version` is not newer than everything here.
#[must_use]
pub fn decide(
    version: Version,
    origin: Origin,
    held: KnownVersion,
    fence: Version,
    recent: impl FnOnce() -> Recent,
) -> Decision {
    let fenced = origin == Origin::Client && version <= fence;
    let current = match held {
        // Newer than anything held or accepted in the stripe, so none of the rules about equal,
        // recent and older versions can apply: the common case, without lookup.
        KnownVersion::AtMost(mark) if version > mark && !fenced => return Decision::Apply,
        KnownVersion::AtMost(_) => return Decision::LookUp,
        KnownVersion::Exactly(current) => current,
    };
    // It is here. (Not so for a GC watermark of that version: a GC watermark is no copy.)
    if current == Current::Record(version) {
        return Decision::Answer(StoreAnswer::Accepted);
    }
    if rules::is_superseded(version, current) {
        return Decision::Answer(match recent() {
            // It was here, and what replaced it is newer: it counts as a copy. Before the fence and the GC watermark,
            // because it is a fact and they are refusals.
            Recent::Accepted => StoreAnswer::Accepted,
            // Never accepted, and never will be, because what is held only grows: a promise on which
            // the coordinator may start over.
            Recent::NotAccepted => StoreAnswer::Stale(current),
            // It may have been accepted and dropped: no promise.
            Recent::Unsure => StoreAnswer::StaleUnknown(current),
        });
    }
    // A straggler from before the fence: anti-entropy has counted on not seeing it. No promise,
    // because a write-back may still bring it here.
    if fenced {
        return Decision::Answer(StoreAnswer::StaleUnknown(current));
    }
    Decision::Apply
}
