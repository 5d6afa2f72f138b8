//! The secret by which nodes of one cluster know each other, and the proofs that a node has it.
//!
//! A proof is an HMAC-SHA256 over all that two nodes say in their handshake: who calls, both nonces, both hellos. Each
//! side draws its nonce anew, so a recorded proof fits no other connection, and the direction is part of it, so a
//! caller's proof cannot be sent back to it as the called node's. It keeps out strangers. It does not protect from who
//! sits on the path between two nodes.

use crate::hash::{MacKey, Tag};

/// Separates these codes from any other use of the secret.
const LABEL: &[u8] = b"kvorum peer proof 1";
/// Secrets of a file: one, and during a change two.
const SECRETS_MAX: usize = 2;

/// Drawn by each side for each connection.
pub type Nonce = [u8; 32];

/// Which side of a connection proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prover {
    /// The node that dialled.
    Caller,
    /// The node that was dialled.
    Called,
}

/// What both sides of one connection have said, as each of them has it.
#[derive(Clone, Copy, Debug)]
pub struct Transcript<'a> {
    /// The caller's nonce.
    pub caller_nonce: &'a Nonce,
    /// The called node's nonce.
    pub called_nonce: &'a Nonce,
    /// All that the caller says of itself: URL, directory, cluster and the rest.
    pub caller_hello: &'a [u8],
    /// All that the called node says of itself.
    pub called_hello: &'a [u8],
    /// What ties the proof to an encrypted channel. Empty: there is none.
    pub channel: &'a [u8],
}

/// The secrets of a node: the first line of the file, and perhaps a second one.
#[derive(Clone, Debug)]
pub struct PeerSecret {
    keys: Vec<MacKey>,
}

/// Why a text holds no secret. Never has a part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerSecretError {
    /// A line is something else.
    #[error("line {line} is not 64 hexadecimal digits: `kvorum secret new FILE` writes such a file")]
    Line {
        /// From 1.
        line: usize,
    },
    /// None, or more than two.
    #[error("it has {lines} lines: it takes one secret, or two while the secret is changed")]
    Count {
        /// Lines that are not empty.
        lines: usize,
    },
}

impl PeerSecret {
    /// Reads the text of a secret file: one or two lines of 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`PeerSecretError`]
    pub fn parse(text: &str) -> Result<Self, PeerSecretError> {
        let lines = || text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        if !(1..=SECRETS_MAX).contains(&lines().count()) {
            return Err(PeerSecretError::Count { lines: lines().count() });
        }
        let key =
            |(at, line): (usize, &str)| MacKey::from_hex(line.trim()).ok_or(PeerSecretError::Line { line: at + 1 });
        Ok(Self { keys: lines().map(key).collect::<Result<_, _>>()? })
    }

    /// A proof with each secret, the first line's first.
    #[must_use]
    pub fn proofs(&self, prover: Prover, transcript: &Transcript<'_>) -> Vec<Tag> {
        self.keys.iter().map(|key| key.tag(&parts(prover, transcript))).collect()
    }

    /// Whether one of the proofs is by one of the secrets. Looks at no more proofs than a file has lines.
    #[must_use]
    pub fn accepts(&self, prover: Prover, transcript: &Transcript<'_>, proofs: &[Tag]) -> bool {
        let parts = parts(prover, transcript);
        proofs.iter().take(SECRETS_MAX).any(|proof| self.keys.iter().any(|key| key.is_tag_of(&parts, proof)))
    }
}

fn parts<'a>(prover: Prover, transcript: &'a Transcript<'_>) -> [&'a [u8]; 7] {
    let direction: &[u8] = match prover {
        Prover::Caller => b"caller",
        Prover::Called => b"called",
    };
    [
        LABEL,
        direction,
        transcript.caller_nonce,
        transcript.called_nonce,
        transcript.caller_hello,
        transcript.called_hello,
        transcript.channel,
    ]
}

#[cfg(test)]
mod tests {
    use super::{PeerSecret, PeerSecretError, Prover, Transcript};

    static NONCES: [[u8; 32]; 3] = [[1; 32], [2; 32], [3; 32]];

    fn transcript() -> Transcript<'static> {
        Transcript {
            caller_nonce: &NONCES[0],
            called_nonce: &NONCES[1],
            caller_hello: b"http://a:1 7 cluster",
            called_hello: b"http://b:1 8 cluster",
            channel: b"",
        }
    }

    fn secret(lines: &[char]) -> PeerSecret {
        let text: String = lines.iter().map(|digit| digit.to_string().repeat(64) + "\n").collect();
        PeerSecret::parse(&text).unwrap()
    }

    #[test]
    fn a_proof_is_accepted_for_the_connection_and_the_side_that_it_was_made_for() {
        let own = secret(&['a']);
        let proofs = own.proofs(Prover::Caller, &transcript());
        assert!(own.accepts(Prover::Caller, &transcript(), &proofs));
        assert!(!own.accepts(Prover::Called, &transcript(), &proofs), "sent back to who made it");
        let others = [
            Transcript { caller_nonce: &NONCES[2], ..transcript() },
            Transcript { called_nonce: &NONCES[2], ..transcript() },
            Transcript { caller_hello: b"http://c:1 7 cluster", ..transcript() },
            Transcript { called_hello: b"http://c:1 8 cluster", ..transcript() },
            Transcript { channel: b"tls", ..transcript() },
        ];
        for other in others {
            assert!(!own.accepts(Prover::Caller, &other, &proofs), "{other:?}");
        }
        assert!(!own.accepts(Prover::Caller, &transcript(), &[]));
        assert!(!own.accepts(Prover::Caller, &transcript(), &[[0; 32], [1; 32]]));
        assert!(!secret(&['b']).accepts(Prover::Caller, &transcript(), &proofs));
    }

    #[test]
    fn a_second_line_lets_old_and_new_secrets_meet() {
        let (old, both, new) = (secret(&['a']), secret(&['b', 'a']), secret(&['b']));
        let meet = |one: &PeerSecret, other: &PeerSecret| {
            let proofs = one.proofs(Prover::Caller, &transcript());
            other.accepts(Prover::Caller, &transcript(), &proofs)
        };
        assert!(meet(&old, &both) && meet(&both, &old) && meet(&new, &both) && meet(&both, &new));
        assert!(!meet(&old, &new) && !meet(&new, &old));
        let many = [vec![[0; 32]; 2], new.proofs(Prover::Caller, &transcript())].concat();
        assert!(!new.accepts(Prover::Caller, &transcript(), &many), "a third proof is not looked at");
    }

    #[test]
    fn a_text_that_holds_no_secret_is_refused_by_line_and_never_shown() {
        let good = "aA09".repeat(16);
        assert!(PeerSecret::parse(&good).is_ok());
        assert!(PeerSecret::parse(&format!("\n{good}\r\n\n{good}\n")).is_ok());
        for (text, error) in [
            (String::new(), PeerSecretError::Count { lines: 0 }),
            ("\n \n".into(), PeerSecretError::Count { lines: 0 }),
            (format!("{good}\n{good}\n{good}"), PeerSecretError::Count { lines: 3 }),
            (good[1..].to_owned(), PeerSecretError::Line { line: 1 }),
            (format!("{good}\n{good}0"), PeerSecretError::Line { line: 2 }),
            (format!("{good}\n{}", good.replace('9', "x")), PeerSecretError::Line { line: 2 }),
        ] {
            assert_eq!(PeerSecret::parse(&text).unwrap_err(), error, "{text}");
        }
        assert!(!format!("{:?}", secret(&['a'])).contains("aaaa"));
    }
}
