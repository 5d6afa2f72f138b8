//! The last line of each of the directory's files.

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
