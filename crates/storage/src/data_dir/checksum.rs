//! The end of each of the directory's files: the hash of what stands before it.

use xxhash_rust::xxh3::xxh3_64;

/// With a last line that has the hash of what stands before it.
#[must_use]
pub fn with_checksum(text: &str) -> String {
    format!("{text}checksum {:016x}\n", xxh3_64(text.as_bytes()))
}

/// What stands before that line; none if the line is not right.
#[must_use]
pub fn without_checksum(text: &str) -> Option<&str> {
    let end = text.strip_suffix('\n')?;
    let (body, checksum) = end.split_at_checked(end.rfind("checksum ")?)?;
    (*checksum == format!("checksum {:016x}", xxh3_64(body.as_bytes()))).then_some(body)
}

/// With the hash of the bytes behind them.
#[must_use]
pub fn with_hash(mut bytes: Vec<u8>) -> Vec<u8> {
    let hash = xxh3_64(&bytes);
    bytes.extend_from_slice(&hash.to_be_bytes());
    bytes
}

/// What stands before that hash; none if it is not right.
#[must_use]
pub fn without_hash(bytes: &[u8]) -> Option<&[u8]> {
    let (body, hash) = bytes.split_last_chunk::<8>()?;
    (*hash == xxh3_64(body).to_be_bytes()).then_some(body)
}
