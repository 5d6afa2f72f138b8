//! What nobody can guess.

use std::fmt::Write as _;
use std::io;

/// 128 random bits, as 32 digits.
///
/// # Errors
/// The system has no randomness.
pub(crate) fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes all text");
    }
    Ok(text)
}
