//! Tokens: where another scan of the same range goes on, at any node. Opaque to clients: base64url of
//! `u8 form (1) | the last key that was given | u64 check`, where the check is XXH3-64 over what the token holds for.
//!
//! The check is against mistakes, not against an attacker: whatever may scan the range may begin anywhere in it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut, Bytes};
use kvorum_core::key::KEY_BYTES_MAX;
use xxhash_rust::xxh3::xxh3_64;

use super::request::ScanRequest;

const FORM: u8 = 1;
const CHECK_BYTES: usize = 8;

/// What tokens hold for: one cluster, range, ack and from.
#[derive(Clone, Debug)]
pub(super) struct TokenScope {
    bytes: Vec<u8>,
}

impl TokenScope {
    pub(super) fn new(cluster: u64, request: &ScanRequest) -> Self {
        let mut bytes = Vec::with_capacity(64);
        bytes.put_u64(cluster);
        bytes.put_u8(request.quorum.required());
        bytes.put_u8(request.quorum.replicas());
        // With their lengths: else another range could have the same bytes.
        for bound in [Some(&request.start), request.end.as_ref()] {
            bytes.put_u64(bound.map_or(u64::MAX, |bound| bound.len() as u64));
            bytes.put_slice(bound.map_or(&[], |bound| bound));
        }
        Self { bytes }
    }

    /// The token of this place: behind `position`, or at the begin.
    pub(super) fn token(&self, position: Option<&[u8]>) -> String {
        let mut raw = vec![FORM];
        raw.put_slice(position.unwrap_or_default());
        raw.put_u64(self.check(&raw));
        URL_SAFE_NO_PAD.encode(raw)
    }

    /// The inverse: the last key that was given, or none at the begin.
    ///
    /// # Errors
    /// It is no token of this scope.
    pub(super) fn read(&self, token: &[u8]) -> Result<Option<Bytes>, NoToken> {
        // Each three bytes are four characters: what is longer need not be decoded to be refused.
        if token.len() > 4 * (KEY_BYTES_MAX + 16) / 3 {
            return Err(NoToken);
        }
        let raw = URL_SAFE_NO_PAD.decode(token).map_err(|_| NoToken)?;
        let (rest, check) = raw.split_at_checked(raw.len().wrapping_sub(CHECK_BYTES)).ok_or(NoToken)?;
        let [FORM, position @ ..] = rest else { return Err(NoToken) };
        if self.check(rest).to_be_bytes() != *check || position.len() > KEY_BYTES_MAX {
            return Err(NoToken);
        }
        Ok((!position.is_empty()).then(|| Bytes::copy_from_slice(position)))
    }

    fn check(&self, rest: &[u8]) -> u64 {
        xxh3_64(&[&self.bytes, rest].concat())
    }
}

/// What came as a token is none of this scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoToken;
