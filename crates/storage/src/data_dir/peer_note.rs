//! What is remembered of the peers, to show what one of them has lost.

use std::collections::BTreeMap;

use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::node::{DirectoryId, NodeId};

use super::checksum::without_checksum;
use super::run::{Run, RunId};

/// What is remembered of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerNote {
    /// The data directory that it is known by.
    pub directory: DirectoryId,
    /// The last of its runs that was seen to have everything from before.
    pub run: RunId,
    /// The greatest sequence that its store is known to have made durable, in that run or before, counted from
    /// [`DataDir::rebuilt`](super::DataDir::rebuilt).
    pub sequence: u64,
    /// Whether it is known to remember this node, durably: this directory, or an earlier one that was made good.
    pub knows_us: bool,
}

/// What a note is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PeerName {
    /// Of a node.
    Node(NodeId),
    /// Of what listened there, before format 4.
    Url(String),
}

impl PeerNote {
    /// Whether a run of the same directory has lost something that an earlier one had.
    #[must_use]
    pub fn misses(&self, run: Run) -> bool {
        run.id != self.run && run.recovered < self.sequence && !is_on(Mutant::OldDiskVotes)
    }

    /// With what was known of the same directory already.
    pub(super) fn with(self, known: Option<&Self>) -> Self {
        match known.filter(|known| known.directory == self.directory) {
            None => self,
            Some(known) => {
                Self { sequence: self.sequence.max(known.sequence), knows_us: self.knows_us || known.knows_us, ..self }
            }
        }
    }
}

/// The text of PEERS, without its checksum.
pub(super) fn show_peers(notes: &BTreeMap<PeerName, PeerNote>) -> String {
    let lines = notes.iter().map(|(name, note)| {
        let PeerNote { directory, run, sequence, knows_us } = note;
        let knows_us = if *knows_us { "knows-us" } else { "met" };
        let name = match name {
            PeerName::Node(node) => node.to_string(),
            PeerName::Url(url) => url.clone(),
        };
        format!("{directory} {:016x} {sequence} {knows_us} {name}\n", run.0)
    });
    lines.collect()
}

/// Nothing, unless each line is a note.
pub(super) fn parse_peers(text: &str) -> Option<BTreeMap<PeerName, PeerNote>> {
    without_checksum(text)?.split_terminator('\n').map(parse_peer).collect()
}

fn parse_peer(line: &str) -> Option<(PeerName, PeerNote)> {
    let mut words = line.splitn(5, ' ');
    let note = PeerNote {
        directory: words.next()?.parse().ok()?,
        run: RunId(u64::from_str_radix(words.next()?, 16).ok()?),
        sequence: words.next()?.parse().ok()?,
        knows_us: match words.next()? {
            "knows-us" => true,
            "met" => false,
            _ => return None,
        },
    };
    let name = words.next()?;
    let name = name.parse().map_or_else(|_| PeerName::Url(name.to_owned()), PeerName::Node);
    Some((name, note))
}
