//! Tokens of scans.

use bytes::Bytes;
use kvorum_core::key::KEY_BYTES_MAX;
use kvorum_core::quorum::Quorum;
use kvorum_core::scan::page::ScanValues;
use kvorum_fuzzing::{byte, split};
use kvorum_replication::cluster_scan::OnMissing;

use super::request::{ScanRequest, behind};
use super::token::TokenScope;

fn scope(cluster: u8, start: &[u8], end: Option<Bytes>) -> TokenScope {
    let request = ScanRequest {
        start: Bytes::copy_from_slice(start),
        end,
        quorum: Quorum::new(2, 3).expect("two of three"),
        limit: None,
        values: ScanValues::Wanted,
        on_missing: OnMissing::End,
        after: None,
    };
    TokenScope::new(u64::from(cluster), &request)
}

/// `cluster, prefix length, prefix, key length / 8, key` and then what is done to the token of that place, `place, bits`
/// each; without that, bytes that are a token's as they are.
pub fn tokens(mut data: &[u8]) {
    let cluster = byte(&mut data);
    let length = usize::from(byte(&mut data));
    let prefix = split(&mut data, length);
    let length = usize::from(byte(&mut data)) * 8;
    let position = split(&mut data, length);
    let own = scope(cluster, prefix, behind(prefix));
    let token = own.token(Some(position));
    let expected = Some(Bytes::copy_from_slice(position)).filter(|position| !position.is_empty());
    assert_eq!(own.read(token.as_bytes()), Ok(expected), "it reads otherwise");
    let others = [
        scope(cluster ^ 1, prefix, behind(prefix)),
        scope(cluster, &[prefix, b"\0"].concat(), behind(prefix)),
        scope(cluster, prefix, Some(Bytes::from_static(b"no end of a prefix\0"))),
    ];
    for other in others {
        assert!(other.read(token.as_bytes()).is_err(), "a token of another scan was taken");
    }
    let mut changed = token.into_bytes();
    for change in data.chunks_exact(2) {
        if let [place, bits] = *change {
            let place = usize::from(place) * changed.len() / 256;
            changed.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= bits);
        }
    }
    for text in [&changed[..], data] {
        if let Ok(position) = own.read(text) {
            assert!(position.as_ref().is_none_or(|position| position.len() <= KEY_BYTES_MAX), "no key");
            assert_eq!(own.token(position.as_deref()).as_bytes(), text, "the same place in another token");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn tokens() {
        kvorum_fuzzing::holds("tokens", super::tokens);
    }
}
