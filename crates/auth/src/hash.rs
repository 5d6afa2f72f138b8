//! SHA-256, HMAC-SHA256 (RFC 2104) and their text.

use std::fmt;

use ctutils::CtEq;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// A SHA-256. Equality takes the same time whatever the bytes are, so it may be used on digests of secrets.
#[derive(Clone, Copy)]
pub struct Digest256([u8; 32]);

impl Digest256 {
    /// The SHA-256 of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// From 64 hexadecimal digits of either case. `None` for anything else.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        bytes_of_hex(text.as_bytes()).map(Self)
    }
}

/// Whether two texts are the same, in a time that shows no more than their lengths.
#[must_use]
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).to_bool()
}

impl PartialEq for Digest256 {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).to_bool()
    }
}

impl Eq for Digest256 {}

impl fmt::Display for Digest256 {
    /// 64 lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A secret of 256 bits for HMAC-SHA256. Never shown.
#[derive(Clone)]
pub struct MacKey([u8; 32]);

/// A message authentication code.
pub type Tag = [u8; 32];

impl MacKey {
    /// Takes the bytes of the secret.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// From 64 hexadecimal digits of either case. `None` for anything else.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        bytes_of_hex(text.as_bytes()).map(Self)
    }

    /// The code of `parts`. Each part is preceded by its length, so no two lists of parts have one code.
    #[must_use]
    pub fn tag(&self, parts: &[&[u8]]) -> Tag {
        self.absorb(parts).finalize().into_bytes().into()
    }

    /// Whether `tag` is the code of `parts`, in a time that does not depend on how much of it is right.
    #[must_use]
    pub fn is_tag_of(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.absorb(parts).verify_slice(tag).is_ok()
    }

    fn absorb(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey")
    }
}

/// `N` bytes from twice as many hexadecimal digits of either case. `None` for anything else.
#[must_use]
pub fn bytes_of_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// Two lower-case hexadecimal digits for each byte.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value of a hexadecimal digit of either case.
pub(crate) fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        b'A'..=b'F' => Some(letter - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Digest256, MacKey};

    #[test]
    fn digests_are_those_of_the_standard() {
        // FIPS 180-4, the example of one block.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest256::of(b"abc").to_string(), abc);
        assert_eq!(Digest256::from_hex(&abc.to_uppercase()), Some(Digest256::of(b"abc")));
        assert_ne!(Digest256::of(b"abd"), Digest256::of(b"abc"));
        for wrong in ["", &abc[1..], &format!("{abc}0"), &format!("{abc}00"), &abc.replace('b', "g")] {
            assert_eq!(Digest256::from_hex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_code_depends_on_the_secret_and_on_where_each_part_ends() {
        let key = MacKey::new([1; 32]);
        let tag = key.tag(&[b"ab", b"c"]);
        assert!(key.is_tag_of(&[b"ab", b"c"], &tag));
        let others: [&[&[u8]]; 4] = [&[b"a", b"bc"], &[b"abc"], &[b"ab", b"c", b""], &[b"ab"]];
        for other in others {
            assert!(!key.is_tag_of(other, &tag), "{other:?}");
        }
        assert!(!MacKey::new([2; 32]).is_tag_of(&[b"ab", b"c"], &tag));
        assert!(!key.is_tag_of(&[b"ab", b"c"], &tag[..31]));
        assert_eq!(format!("{key:?}"), "MacKey");
    }
}
