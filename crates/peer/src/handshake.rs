//! The handshake: `GET /_peer` with `Upgrade: kvorum/4`, and its `101`, on the port that clients use.
//!
//! Both sides send their identity, how much they found in their store, and what they remember of the other, and refuse
//! what is no peer: another protocol version, cluster, list of founders, or a deadline longer than what this node remembers
//! accepted versions for.

use hyper::header::{HeaderMap, HeaderName, HeaderValue, UPGRADE};
use kvorum_auth::hash::{Tag, bytes_of_hex, hex};
use kvorum_auth::peer_secret::Nonce;
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::node::{DirectoryId, NodeId};
use kvorum_storage::data_dir::{Run, RunId};

use super::error::HandshakeError;
use crate::membership::{Membership, RemembersUs, VoteState};

/// The protocol and its version, as `Upgrade` names it.
pub const PROTOCOL: &str = "kvorum/4";
/// The path that peers ask for.
pub const PATH: &str = "/_peer";

/// What is repeated of a refused node's URL, which may be as long as a head.
const SHOWN_CHARS_MAX: usize = 256;

const CLUSTER: HeaderName = HeaderName::from_static("kvorum-cluster");
const NODE: HeaderName = HeaderName::from_static("kvorum-node");
const DIRECTORY: HeaderName = HeaderName::from_static("kvorum-directory");
const FOUNDING: HeaderName = HeaderName::from_static("kvorum-founding");
const EPOCH: HeaderName = HeaderName::from_static("kvorum-epoch");
const DEADLINE: HeaderName = HeaderName::from_static("kvorum-deadline-ms");
const RUN: HeaderName = HeaderName::from_static("kvorum-run");
const RECOVERED: HeaderName = HeaderName::from_static("kvorum-recovered");
const REMEMBERS: HeaderName = HeaderName::from_static("kvorum-remembers");
const REMEMBERS_RUN: HeaderName = HeaderName::from_static("kvorum-remembers-run");
const REMEMBERS_SEQUENCE: HeaderName = HeaderName::from_static("kvorum-remembers-sequence");
const NONCE: HeaderName = HeaderName::from_static("kvorum-nonce");
const PROOF: HeaderName = HeaderName::from_static("kvorum-proof");
/// Proofs of one answer: one for each line of a secret's file.
const PROOFS_MAX: usize = 2;

/// What one side sends of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The speaker's cluster; 0 as long as it is not founded.
    pub cluster: u64,
    /// Digest of the list of nodes that the cluster is founded with, with their weights and zones.
    pub founding: u64,
    /// The newest layout that the speaker knows.
    pub epoch: u64,
    /// The speaker's URL.
    pub url: String,
    /// The speaker's data directory.
    pub directory: DirectoryId,
    /// The longest that the speaker uses an answer for, from its request.
    pub deadline_ms: u64,
    /// The run of the speaker's process, and how far its store had got when that began, as peers count it.
    pub run: Run,
    /// What the speaker remembers of the listener.
    pub remembers: Option<PeerMemory>,
    /// Drawn for this connection, if the speaker has a secret.
    pub nonce: Option<Nonce>,
    /// Of the called node: that it has the secret.
    pub proofs: Vec<Tag>,
}

/// What one side remembers of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerMemory {
    /// Its data directory.
    pub directory: DirectoryId,
    /// The last of its runs that had everything from before.
    pub run: RunId,
    /// How far its store is known to have been durable.
    pub sequence: u64,
}

impl Hello {
    /// What this node sends to `peer`.
    #[must_use]
    pub fn ours(membership: &Membership, deadline_ms: u64, peer: NodeId) -> Self {
        let layout = membership.layout();
        Self {
            cluster: layout.cluster(),
            founding: layout.founding_digest(),
            epoch: layout.epoch(),
            url: membership.own_state().url.to_string(),
            directory: membership.directory(),
            deadline_ms,
            run: membership.run(),
            remembers: membership.remembered(peer).map(|note| PeerMemory {
                directory: note.directory,
                run: note.run,
                sequence: note.sequence,
            }),
            nonce: None,
            proofs: Vec::new(),
        }
    }

    /// What it says, by header, but for the proofs.
    fn fields(&self) -> Vec<(HeaderName, String)> {
        let mut fields = vec![
            (UPGRADE, PROTOCOL.to_owned()),
            (CLUSTER, format!("{:016x}", self.cluster)),
            (FOUNDING, format!("{:016x}", self.founding)),
            (EPOCH, self.epoch.to_string()),
            (NODE, self.url.clone()),
            (DIRECTORY, self.directory.to_string()),
            (DEADLINE, self.deadline_ms.to_string()),
            (RUN, format!("{:016x}", self.run.id.0)),
            (RECOVERED, self.run.recovered.to_string()),
        ];
        if let Some(remembers) = self.remembers {
            fields.push((REMEMBERS, remembers.directory.to_string()));
            fields.push((REMEMBERS_RUN, format!("{:016x}", remembers.run.0)));
            fields.push((REMEMBERS_SEQUENCE, remembers.sequence.to_string()));
        }
        fields.extend(self.nonce.map(|nonce| (NONCE, hex(&nonce))));
        fields
    }

    /// Its headers.
    #[must_use]
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(16);
        let proofs: Vec<String> = self.proofs.iter().map(|tag| hex(tag)).collect();
        let proofs = (!proofs.is_empty()).then(|| (PROOF, proofs.join(",")));
        for (name, text) in self.fields().into_iter().chain(proofs) {
            headers.insert(name, HeaderValue::try_from(text).expect("digits and a checked URL are header text"));
        }
        headers
    }

    /// All of it but the proofs, for a proof.
    #[must_use]
    pub fn transcript(&self) -> Vec<u8> {
        self.fields().iter().flat_map(|(name, text)| format!("{name}: {text}\n").into_bytes()).collect()
    }

    /// Reads what the other side sends.
    ///
    /// # Errors
    /// [`HandshakeError::Malformed`] for the first header that is absent or not what it should be.
    pub fn parse<'a>(header: impl Fn(&'static str) -> Option<&'a [u8]>) -> Result<Self, HandshakeError> {
        let text = |name| {
            let value = header(name).ok_or(HandshakeError::Malformed(name))?;
            std::str::from_utf8(value).map_err(|_| HandshakeError::Malformed(name))
        };
        let hex64 = |name| u64::from_str_radix(text(name)?, 16).map_err(|_| HandshakeError::Malformed(name));
        let decimal = |name| text(name)?.parse::<u64>().map_err(|_| HandshakeError::Malformed(name));
        let directory = |name| match text(name)?.parse() {
            Ok(DirectoryId::UNKNOWN) | Err(_) => Err(HandshakeError::Malformed(name)),
            Ok(directory) => Ok(directory),
        };
        let tag = |name, value| bytes_of_hex(value).ok_or(HandshakeError::Malformed(name));
        if text("upgrade")? != PROTOCOL {
            return Err(HandshakeError::Malformed("upgrade"));
        }
        Ok(Self {
            cluster: hex64("kvorum-cluster")?,
            founding: hex64("kvorum-founding")?,
            epoch: decimal("kvorum-epoch")?,
            url: text("kvorum-node")?.to_owned(),
            directory: directory("kvorum-directory")?,
            deadline_ms: decimal("kvorum-deadline-ms")?,
            run: Run { id: RunId(hex64("kvorum-run")?), recovered: decimal("kvorum-recovered")? },
            remembers: match header("kvorum-remembers") {
                None => None,
                Some(_) => Some(PeerMemory {
                    directory: directory("kvorum-remembers")?,
                    run: RunId(hex64("kvorum-remembers-run")?),
                    sequence: decimal("kvorum-remembers-sequence")?,
                }),
            },
            nonce: header("kvorum-nonce").map(|value| tag("kvorum-nonce", value)).transpose()?,
            proofs: match header("kvorum-proof") {
                None => Vec::new(),
                Some(tags) => {
                    let tags = tags.split(|byte| *byte == b',').take(PROOFS_MAX);
                    tags.map(|value| tag("kvorum-proof", value)).collect::<Result<_, _>>()?
                }
            },
        })
    }

    /// Whether this node must have lost something, if it is true what the speaker remembers of it, and does not rebuild
    /// yet.
    #[must_use]
    pub fn is_accuser(&self, membership: &Membership) -> bool {
        membership.vote_state() != VoteState::Rebuilding
            && self.evidence_of_data_loss(membership).is_some()
            && !is_on(Mutant::AccusersServed)
    }

    /// What this node must have lost, if what the speaker remembers of it is true.
    fn evidence_of_data_loss(&self, membership: &Membership) -> Option<String> {
        let (url, remembers) = (&self.url, self.remembers?);
        if is_on(Mutant::WipedVotes) || remembers.sequence < membership.rebuilt() {
            return None;
        }
        if remembers.directory != membership.directory() {
            return Some(format!(
                "{url} remembers another data directory of this node: what that one had acknowledged is not here"
            ));
        }
        // What it has stored since may be more than was lost, in this run or in one that the peer has missed.
        let missed = membership.run_after(remembers.run)?;
        let is_older = missed.recovered < remembers.sequence && !is_on(Mutant::OldDiskVotes);
        is_older.then(|| {
            format!(
                "{url} remembers that this node had stored up to sequence {}, and it came back with {}: \
                 its data directory is an older copy, or has lost its end",
                remembers.sequence, missed.recovered
            )
        })
    }

    /// Which node of the cluster sent this, if it may connect.
    ///
    /// # Errors
    /// [`HandshakeError`], to be sent to the peer and logged.
    pub fn check(&self, membership: &Membership, deadline_ms: u64) -> Result<NodeId, HandshakeError> {
        let layout = membership.layout();
        let ours = layout.cluster();
        // Before a cluster is founded, only its list tells it from others.
        if self.cluster != ours && self.cluster != 0 && ours != 0 {
            return Err(HandshakeError::Cluster { theirs: self.cluster, ours });
        }
        let ours = layout.founding_digest();
        if self.founding != ours {
            return Err(HandshakeError::Founding { theirs: self.founding, ours });
        }
        let node = layout.node_at(&self.url).filter(|node| *node != membership.own());
        let node = node.ok_or_else(|| HandshakeError::Unknown(self.url.chars().take(SHOWN_CHARS_MAX).collect()))?;
        if self.directory == membership.directory() {
            return Err(HandshakeError::Copied(self.url.clone()));
        }
        if self.deadline_ms > deadline_ms {
            return Err(HandshakeError::Deadline { theirs: self.deadline_ms, ours: deadline_ms });
        }
        Ok(node)
    }
}

/// After a handshake that this node dialled, before any answer counts: notes the peer's identity, and what it
/// remembers. Whether the peer's answers count. Blocks on the disk: not for a shard.
///
/// # Errors
/// If the peer could not be remembered durably.
pub fn register_peer(
    membership: &Membership,
    node: NodeId,
    hello: &Hello,
) -> Result<bool, kvorum_storage::data_dir::DataDirError> {
    membership.note_remembered(hello.remembers.map_or(0, |remembers| remembers.sequence));
    membership.note_epoch(node, hello.epoch);
    if let Some(reason) = hello.evidence_of_data_loss(membership) {
        membership.become_rebuilding(&reason)?;
    }
    // One that remembers an earlier directory knows this node as well: what it holds against it has been looked at, and
    // it would hold the same against the next directory. Else a node that was rebuilt, and restarts before that peer
    // has received it, would wait for the peer, and the peer for its vote.
    let is_known = hello.remembers.is_some();
    let remembers = if is_known { RemembersUs::Yes } else { RemembersUs::NotYet };
    membership.register_peer(node, hello.directory, hello.run, remembers)
}
