//! A client's key: its text, and what a file of keys has of it.
//!
//! `kvk_ID_SECRET_CRC`: 12 lower-case hexadecimal digits that name the key; 32 random bytes as 43 characters of
//! `0-9A-Za-z`; 8 hexadecimal digits, the CRC-32 (IEEE 802.3) of all before the last `_`. The checksum is for secret
//! scanners, and tells a mistyped key from an unknown one. A file of keys has the SHA-256 of the 43 characters: 256
//! random bits cannot be guessed, so a slow hash would add nothing.

use std::fmt;

use crate::hash::{Digest256, bytes_of_hex};

const PREFIX: &[u8] = b"kvk_";
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SECRET_BYTES: usize = 43;
/// Length of a key's text.
pub const API_KEY_BYTES: usize = PREFIX.len() + 12 + 1 + SECRET_BYTES + 1 + 8;

/// The public part of a key, by which it is found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 6]);

impl KeyId {
    /// Takes the bytes.
    #[must_use]
    pub fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// From 12 lower-case hexadecimal digits. `None` for anything else.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let is_lower_case = !text.iter().any(u8::is_ascii_uppercase);
        bytes_of_hex(text).filter(|_| is_lower_case).map(Self)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A client's key. `Debug` shows its ID alone.
#[derive(Clone)]
pub struct ApiKey {
    id: KeyId,
    secret: [u8; SECRET_BYTES],
}

/// Why a text is not a key. Never has a part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeyError {
    /// Not [`API_KEY_BYTES`] long, or other separators.
    #[error("it is not of the form kvk_ID_SECRET_CRC, which has {API_KEY_BYTES} characters")]
    Form,
    /// The ID has other characters.
    #[error("its ID, the part after `kvk_`, is not 12 lower-case hexadecimal digits")]
    Id,
    /// The secret has other characters.
    #[error("its secret, the part before the last `_`, is not 43 letters and digits")]
    Secret,
    /// A character is wrong somewhere.
    #[error("its checksum is wrong: a character was lost or changed on the way")]
    Checksum,
}

impl ApiKey {
    /// From random bytes.
    #[must_use]
    pub fn new(id: KeyId, secret: [u8; 32]) -> Self {
        Self { id, secret: base_62(secret) }
    }

    /// Reads the text of a key.
    ///
    /// # Errors
    /// [`ApiKeyError`], which names the part that is wrong.
    pub fn parse(text: &[u8]) -> Result<Self, ApiKeyError> {
        let rest = text.strip_prefix(PREFIX).filter(|_| text.len() == API_KEY_BYTES).ok_or(ApiKeyError::Form)?;
        let mut parts = rest.split(|byte| *byte == b'_');
        let (Some(id), Some(secret), Some(crc), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(ApiKeyError::Form);
        };
        let secret = <[u8; SECRET_BYTES]>::try_from(secret).map_err(|_| ApiKeyError::Form)?;
        let crc = <[u8; 8]>::try_from(crc).map_err(|_| ApiKeyError::Form)?;
        let id = KeyId::parse(id).ok_or(ApiKeyError::Id)?;
        if !secret.iter().all(u8::is_ascii_alphanumeric) {
            return Err(ApiKeyError::Secret);
        }
        let key = Self { id, secret };
        let given = bytes_of_hex(&crc).map(u32::from_be_bytes);
        if given == Some(key.checksum()) { Ok(key) } else { Err(ApiKeyError::Checksum) }
    }

    /// The text, which is to be shown once and kept nowhere.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}_{:08x}", self.body(), self.checksum())
    }

    /// The part by which the key is found.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// What a file of keys has of the secret.
    #[must_use]
    pub fn digest(&self) -> Digest256 {
        Digest256::of(&self.secret)
    }

    fn body(&self) -> String {
        format!("kvk_{}_{}", self.id, String::from_utf8_lossy(&self.secret))
    }

    fn checksum(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(PREFIX);
        for byte in self.id.0 {
            crc.update(&[hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
        crc.update(b"_");
        crc.update(&self.secret);
        crc.finalize()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({})", self.id)
    }
}

fn hex_digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' + value - 10 }
}

/// The number that the bytes are, in base 62, left-padded with `0`.
fn base_62(mut number: [u8; 32]) -> [u8; SECRET_BYTES] {
    let mut text = [b'0'; SECRET_BYTES];
    for place in text.iter_mut().rev() {
        let mut remainder = 0_u32;
        for byte in &mut number {
            let value = remainder << 8 | u32::from(*byte);
            *byte = u8::try_from(value / 62).expect("the remainder before is below 62");
            remainder = value % 62;
        }
        *place = *DIGITS.get(remainder as usize).expect("a remainder is below 62");
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{API_KEY_BYTES, ApiKey, ApiKeyError, KeyId};

    const TEXT: &str = "kvk_3f9c0a1b2c4d_0000000000000000000000000000000000000000001_";

    fn with_checksum(body: &str) -> String {
        format!("{body}_{:08x}", crc32fast::hash(body.as_bytes()))
    }

    proptest! {
        #[test]
        fn a_key_is_read_as_it_was_written(id: [u8; 6], secret: [u8; 32]) {
            let key = ApiKey::new(KeyId::new(id), secret);
            let text = key.text();
            prop_assert_eq!(text.len(), API_KEY_BYTES);
            let read = ApiKey::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(read.id(), key.id());
            prop_assert_eq!(read.digest(), key.digest());
            prop_assert_eq!(read.text(), text);
        }

        #[test]
        fn any_changed_character_is_noticed(id: [u8; 6], secret: [u8; 32], at in 0..API_KEY_BYTES, other: u8) {
            let mut text = ApiKey::new(KeyId::new(id), secret).text().into_bytes();
            prop_assume!(text[at] != other);
            // The checksum alone is read in either case.
            prop_assume!(at < API_KEY_BYTES - 8 || !text[at].eq_ignore_ascii_case(&other));
            text[at] = other;
            prop_assert!(ApiKey::parse(&text).is_err());
        }
    }

    #[test]
    fn a_secret_is_its_number_in_base_62() {
        let mut one = [0; 32];
        one[31] = 1;
        let key = ApiKey::new(KeyId::new([0x3f, 0x9c, 0x0a, 0x1b, 0x2c, 0x4d]), one);
        assert!(key.text().starts_with(TEXT), "{}", key.text());
        assert_eq!(key.text(), with_checksum(TEXT.trim_end_matches('_')));
        let mut sixty_two = [0; 32];
        sixty_two[31] = 62;
        assert!(ApiKey::new(key.id(), sixty_two).text().contains("00000010_"));
        // 2^256 - 1, by another program.
        let largest = ApiKey::new(key.id(), [255; 32]).text();
        assert_eq!(largest.split('_').nth(2).unwrap(), "yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp1");
        assert_eq!(format!("{key:?}"), "ApiKey(3f9c0a1b2c4d)");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let secret = "a".repeat(43);
        let of = |body: &str| ApiKey::parse(with_checksum(body).as_bytes()).map(|key| key.text());
        assert!(of(&format!("kvk_3f9c0a1b2c4d_{secret}")).is_ok());
        assert_eq!(of(&format!("kvk_3F9c0a1b2c4d_{secret}")), Err(ApiKeyError::Id));
        assert_eq!(of(&format!("kvk_3f9c0a1b2c4g_{secret}")), Err(ApiKeyError::Id));
        assert_eq!(of(&format!("kvk_3f9c0a1b2c4d_{}-", "a".repeat(42))), Err(ApiKeyError::Secret));
        assert_eq!(of(&format!("kvk_3f9c0a1b2c4d_{}", "a".repeat(42))), Err(ApiKeyError::Form));
        assert_eq!(of(&format!("kvx_3f9c0a1b2c4d_{secret}")), Err(ApiKeyError::Form));
        assert_eq!(of(&format!("kvk_3f9c0a1b2c4d_{}_", "a".repeat(42))), Err(ApiKeyError::Form));
        let wrong = format!("kvk_3f9c0a1b2c4d_{secret}_00000000");
        assert_eq!(ApiKey::parse(wrong.as_bytes()).map(|key| key.text()), Err(ApiKeyError::Checksum));
        for error in [ApiKeyError::Form, ApiKeyError::Id, ApiKeyError::Secret, ApiKeyError::Checksum] {
            assert!(!error.to_string().contains(&secret));
        }
    }
}
