//! What two nodes show each other of the cluster's secret, in their handshake.
//!
//! ```text
//! caller                                   called
//!   hello, nonce                    ─────►
//!                                   ◄─────  101, hello, nonce, proofs of the called
//!   first frame: proofs of the caller ───►
//! ```
//!
//! Each side believes nothing of the other before its proof: the caller notes no identity, the called node serves no
//! frame. A node whose secret is optional takes a peer without one, while the secret is introduced.

use bytes::{BufMut, Bytes, BytesMut};
use kvorum_auth::hash::Tag;
use kvorum_auth::peer_secret::{Nonce, PeerSecret, Prover, Transcript};
use kvorum_core::mutant::{Mutant, is_on};

use crate::error::HandshakeError;
use crate::handshake::Hello;

/// Whether a peer without the secret is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretNeed {
    /// Never.
    Required,
    /// While the secret is introduced.
    Optional,
}

/// The cluster's secret, as a node has it.
pub struct ClusterSecret {
    secret: PeerSecret,
    need: SecretNeed,
    draw: Box<dyn Fn() -> Nonce + Send + Sync>,
}

/// What a caller has to send first.
pub(crate) struct AwaitedProof {
    secret: PeerSecret,
    nonces: [Nonce; 2],
    hellos: [Vec<u8>; 2],
}

impl ClusterSecret {
    /// `draw` gives random nonces, each once.
    #[must_use]
    pub fn new(secret: PeerSecret, need: SecretNeed, draw: Box<dyn Fn() -> Nonce + Send + Sync>) -> Self {
        Self { secret, need, draw }
    }

    /// A nonce for another connection.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        (self.draw)()
    }

    /// At the caller: whether the answer to `ours` is one of a node that has the secret. What is to be sent first.
    ///
    /// # Errors
    /// [`HandshakeError::NoProof`], [`HandshakeError::WrongProof`].
    pub fn check_answer(&self, ours: &Hello, answer: &Hello) -> Result<Option<Bytes>, HandshakeError> {
        let (Some(own), Some(theirs)) = (ours.nonce, answer.nonce) else { return self.without_proof().map(|()| None) };
        let (nonces, hellos) = ([own, theirs], [ours.transcript(), answer.transcript()]);
        let transcript = transcript(&nonces, &hellos);
        if !self.secret.accepts(Prover::Called, &transcript, &answer.proofs) && !is_on(Mutant::ProofsUnchecked) {
            return Err(HandshakeError::WrongProof);
        }
        let mut payload = BytesMut::new();
        self.secret.proofs(Prover::Caller, &transcript).iter().for_each(|tag| payload.put_slice(tag));
        Ok(Some(payload.freeze()))
    }

    /// At the called node: puts nonce and proofs into `ours`, the answer to `hello`.
    ///
    /// # Errors
    /// [`HandshakeError::NoProof`] if the caller has no secret and needs one.
    pub(crate) fn answer(&self, hello: &Hello, ours: &mut Hello) -> Result<(), HandshakeError> {
        let Some(theirs) = hello.nonce else { return self.without_proof() };
        let own = self.nonce();
        ours.nonce = Some(own);
        let (nonces, hellos) = ([theirs, own], [hello.transcript(), ours.transcript()]);
        ours.proofs = self.secret.proofs(Prover::Called, &transcript(&nonces, &hellos));
        Ok(())
    }

    /// At the called node: what the caller of `hello`, which has had `ours` as its answer, has to send first.
    pub(crate) fn awaited(&self, hello: &Hello, ours: &Hello) -> Option<AwaitedProof> {
        let nonces = [hello.nonce?, ours.nonce?];
        Some(AwaitedProof { secret: self.secret.clone(), nonces, hellos: [hello.transcript(), ours.transcript()] })
    }

    fn without_proof(&self) -> Result<(), HandshakeError> {
        match self.need {
            SecretNeed::Optional => Ok(()),
            SecretNeed::Required if is_on(Mutant::ProofsUnchecked) => Ok(()),
            SecretNeed::Required => Err(HandshakeError::NoProof),
        }
    }
}

impl AwaitedProof {
    pub(crate) fn accepts(&self, payload: &[u8]) -> bool {
        let (tags, rest) = payload.as_chunks::<{ size_of::<Tag>() }>();
        let transcript = transcript(&self.nonces, &self.hellos);
        let is_right = rest.is_empty() && self.secret.accepts(Prover::Caller, &transcript, tags);
        is_right || is_on(Mutant::ProofsUnchecked)
    }
}

fn transcript<'a>(nonces: &'a [Nonce; 2], hellos: &'a [Vec<u8>; 2]) -> Transcript<'a> {
    let ([caller_nonce, called_nonce], [caller_hello, called_hello]) = (nonces, hellos);
    Transcript { caller_nonce, called_nonce, caller_hello, called_hello, channel: b"" }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use kvorum_core::node::DirectoryId;
    use kvorum_storage::data_dir::{Run, RunId};

    use super::*;

    fn secret(digits: &str, need: SecretNeed) -> ClusterSecret {
        static DRAWN: AtomicU8 = AtomicU8::new(0);
        let text: String = digits.chars().map(|digit| digit.to_string().repeat(64) + "\n").collect();
        let draw = || [DRAWN.fetch_add(1, Ordering::Relaxed); 32];
        ClusterSecret::new(PeerSecret::parse(&text).unwrap(), need, Box::new(draw))
    }

    fn hello(url: &str) -> Hello {
        Hello {
            cluster: 7,
            url: url.to_owned(),
            directory: DirectoryId(1),
            founding: 8,
            epoch: 1,
            deadline_ms: 5000,
            run: Run { id: RunId(3), recovered: 4 },
            remembers: None,
            nonce: None,
            proofs: Vec::new(),
        }
    }

    /// A whole handshake. Why one of both refuses it.
    fn shake(caller: Option<&ClusterSecret>, called: Option<&ClusterSecret>) -> Result<(), HandshakeError> {
        let mut request = hello("http://a:1");
        request.nonce = caller.map(ClusterSecret::nonce);
        let mut answer = hello("http://b:1");
        if let Some(called) = called {
            called.answer(&request, &mut answer)?;
        }
        let sent = caller.map(|caller| caller.check_answer(&request, &answer)).transpose()?.flatten();
        match called.and_then(|called| called.awaited(&request, &answer)) {
            Some(awaited) if sent.as_ref().is_none_or(|sent| !awaited.accepts(sent)) => Err(HandshakeError::WrongProof),
            _ => Ok(()),
        }
    }

    #[test]
    fn nodes_of_one_secret_take_each_other_and_no_other_node() {
        let [a, b] = ["a", "b"].map(|digit| secret(digit, SecretNeed::Required));
        assert_eq!(shake(Some(&a), Some(&a)), Ok(()));
        assert_eq!(shake(Some(&a), Some(&b)), Err(HandshakeError::WrongProof));
        assert_eq!(shake(None, Some(&a)), Err(HandshakeError::NoProof));
        assert_eq!(shake(Some(&a), None), Err(HandshakeError::NoProof));
        assert_eq!(shake(None, None), Ok(()));
    }

    #[test]
    fn a_secret_is_introduced_by_two_rolling_restarts_and_changed_by_three() {
        let [old, new] = ["a", "b"].map(|digit| secret(digit, SecretNeed::Required));
        let introduced = secret("a", SecretNeed::Optional);
        let pairs = |one: Option<&ClusterSecret>, other: Option<&ClusterSecret>| {
            shake(one, other).and_then(|()| shake(other, one)).is_ok()
        };
        assert!(pairs(None, Some(&introduced)) && pairs(Some(&introduced), Some(&old)));
        let both = secret("ba", SecretNeed::Required);
        assert!(pairs(Some(&old), Some(&both)) && pairs(Some(&both), Some(&new)));
        assert!(!pairs(Some(&old), Some(&new)));
    }

    #[test]
    fn a_proof_of_one_connection_is_none_of_another() {
        let own = secret("a", SecretNeed::Required);
        let greet = || {
            let mut request = hello("http://a:1");
            request.nonce = Some(own.nonce());
            let mut answer = hello("http://b:1");
            own.answer(&request, &mut answer).unwrap();
            (request, answer)
        };
        let (request, answer) = greet();
        let sent = own.check_answer(&request, &answer).unwrap().unwrap();
        let awaited = own.awaited(&request, &answer).unwrap();
        assert!(awaited.accepts(&sent));
        for wrong in [sent[1..].to_vec(), Vec::new(), vec![0; 32], [&sent[..], &b"x"[..]].concat()] {
            assert!(!awaited.accepts(&wrong));
        }
        assert!(!awaited.accepts(answer.proofs[0].as_slice()), "its own proof, sent back");
        let (other_request, other_answer) = greet();
        assert!(!own.awaited(&other_request, &other_answer).unwrap().accepts(&sent), "replayed");
        // What was said belongs to it.
        let mut changed = request.clone();
        changed.directory = DirectoryId(2);
        assert!(!own.awaited(&changed, &answer).unwrap().accepts(&sent));
        assert_eq!(own.check_answer(&request, &other_answer), Err(HandshakeError::WrongProof));
    }
}
