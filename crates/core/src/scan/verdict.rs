//! What a scan does with a key that its cover has passed.
//!
//! Owns the rule under which no read is needed. It is the one of [`quorum::read`](crate::quorum::read): what is answered
//! is held by a majority of the replicas that the record asks for, as far as the reader addresses them, and no replica
//! of the cover holds anything else. Whatever differs is left to a read.

use super::page::ScanHolding;
use crate::mutant::{Mutant, is_on};
use crate::quorum::{Quorum, Rank, majority};
use crate::record::Record;
use crate::version::{Hlc, Version};

/// What one replica of a key's cover says.
#[derive(Clone, Copy, Debug)]
pub struct CoverAnswer<'a> {
    /// Its place.
    pub rank: Rank,
    /// What it holds; nothing if it does not.
    pub holding: Option<&'a ScanHolding>,
    /// What its absence stands for.
    pub gc_watermark: Version,
    /// Its durable clock.
    pub clock: Hlc,
}

/// What to do with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanVerdict {
    /// Send what the provider holds.
    Send,
    /// There is no value.
    Skip,
    /// Ask for it: an ordinary read decides.
    Read,
}

/// What is held, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldVersion {
    version: Version,
    from: u8,
    is_deletion: bool,
    expires_ms: Option<u64>,
}

/// The verdict on a key. `cover` are `quorum.required()` answers, the provider's first. `own_clock` is the
/// coordinator's, asked only where a value ends.
#[must_use]
pub fn verdict(quorum: Quorum, cover: &[CoverAnswer<'_>], own_clock: impl FnOnce() -> Hlc) -> ScanVerdict {
    if cover.len() < usize::from(quorum.required()) {
        return ScanVerdict::Read;
    }
    let mut agreed: Option<HeldVersion> = None;
    for answer in cover {
        let Some(holding) = answer.holding else { continue };
        let Some(held) = held_version(holding) else { return ScanVerdict::Read };
        if agreed.is_some_and(|agreed| agreed != held) && !is_on(Mutant::ScanWithoutWitnesses) {
            return ScanVerdict::Read;
        }
        agreed.get_or_insert(held);
    }
    let Some(held) = agreed else { return ScanVerdict::Skip };
    if is_on(Mutant::ScanWithoutWitnesses) && cover.first().is_some_and(|provider| provider.holding.is_some()) {
        return if held.is_deletion { ScanVerdict::Skip } else { ScanVerdict::Send };
    }
    if held.is_deletion {
        // A deletion that some lack is one where their watermarks say the same.
        let lacks = |answer: &&CoverAnswer<'_>| answer.holding.is_none() && is_in_scope(held, answer.rank);
        let is_same = cover.iter().filter(lacks).all(|answer| answer.gc_watermark >= held.version);
        return if is_same && is_held(quorum, held, cover) { ScanVerdict::Skip } else { ScanVerdict::Read };
    }
    let is_everywhere = cover.iter().all(|answer| answer.holding.is_some() || !is_in_scope(held, answer.rank));
    let is_provided = cover.first().is_some_and(|provider| provider.holding.is_some());
    if !is_everywhere || !is_provided || !is_held(quorum, held, cover) {
        return ScanVerdict::Read;
    }
    match held.expires_ms {
        None => ScanVerdict::Send,
        Some(expires_ms) => at_its_end(cover, expires_ms, own_clock),
    }
}

/// A value that ends is there while no clock has passed the end, and gone once all of the cover's have. Between, a read
/// has the clocks follow.
fn at_its_end(cover: &[CoverAnswer<'_>], expires_ms: u64, own_clock: impl FnOnce() -> Hlc) -> ScanVerdict {
    let passed = cover.iter().filter(|answer| answer.clock.millis() >= expires_ms).count();
    match passed {
        0 if own_clock().millis() < expires_ms => ScanVerdict::Send,
        passed if passed == cover.len() => ScanVerdict::Skip,
        _ => ScanVerdict::Read,
    }
}

/// Whether a replica is one of those that the record asks for.
fn is_in_scope(held: HeldVersion, rank: Rank) -> bool {
    rank.0 < held.from
}

/// Whether a majority of the replicas that the record asks for is in the cover and holds it, or is past it. Below a
/// quorum the client has chosen not to wait for that.
fn is_held(quorum: Quorum, held: HeldVersion, cover: &[CoverAnswer<'_>]) -> bool {
    let scope = held.from.min(quorum.replicas());
    let counts = |answer: &&CoverAnswer<'_>| is_in_scope(held, answer.rank);
    !quorum.is_quorum() || cover.iter().filter(counts).count() >= usize::from(majority(scope))
}

fn held_version(holding: &ScanHolding) -> Option<HeldVersion> {
    match holding {
        ScanHolding::Record(bytes) => {
            let (version, from) = (Record::claimed_version(bytes)?, Record::claimed_from(bytes)?);
            let expires_ms = Record::claimed_expiry(bytes);
            Some(HeldVersion { version, from, is_deletion: false, expires_ms })
        }
        ScanHolding::Value { version, from, expires_ms } | ScanHolding::Derived { version, from, expires_ms, .. } => {
            Some(HeldVersion { version: *version, from: *from, is_deletion: false, expires_ms: *expires_ms })
        }
        ScanHolding::Deletion { version, from } => {
            Some(HeldVersion { version: *version, from: *from, is_deletion: true, expires_ms: None })
        }
        ScanHolding::Damaged => None,
    }
}
