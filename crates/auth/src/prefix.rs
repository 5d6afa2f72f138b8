//! A prefix of keys: any bytes, and the range of keys that begin with it.

use std::fmt;

use crate::hash::digit;

/// The bytes with which a key has to begin. Empty: every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    bytes: Vec<u8>,
    /// The least byte string above every one that begins with `bytes`. `None`: there is none.
    successor: Option<Vec<u8>>,
}

/// Why a text is not a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`%` at its byte {at} is not followed by two hexadecimal digits; a `%` itself is written `%25`")]
pub struct BadEscape {
    /// Offset into the text.
    pub at: usize,
}

impl Prefix {
    /// Takes the bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        let mut successor = bytes.clone();
        while successor.pop_if(|last| *last == u8::MAX).is_some() {}
        let successor = successor.split_last().map(|(last, front)| [front, &[last + 1]].concat());
        Self { bytes, successor }
    }

    /// Reads a prefix: `%XX` is the byte `XX`, all else stands for its own bytes.
    ///
    /// # Errors
    /// [`BadEscape`] at a `%` without two digits.
    pub fn parse(text: &str) -> Result<Self, BadEscape> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.bytes().enumerate();
        while let Some((at, byte)) = rest.next() {
            if byte != b'%' {
                bytes.push(byte);
                continue;
            }
            let mut next = || rest.next().and_then(|(_, letter)| digit(letter)).ok_or(BadEscape { at });
            bytes.push(next()? << 4 | next()?);
        }
        Ok(Self::new(bytes))
    }

    /// Whether the key begins with these bytes.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key.starts_with(&self.bytes)
    }

    /// Whether every key from `start` on and before `end` begins with these bytes. No `end`: all keys from `start` on.
    #[must_use]
    pub fn covers(&self, start: &[u8], end: Option<&[u8]>) -> bool {
        let ends_within = match (&self.successor, end) {
            (None, _) => true,
            (Some(successor), Some(end)) => end <= successor.as_slice(),
            (Some(_), None) => false,
        };
        self.contains(start) && ends_within
    }
}

impl fmt::Display for Prefix {
    /// As [`Prefix::parse`] takes it: printable ASCII as itself, all else escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.iter().try_for_each(|byte| match byte {
            b'%' => f.write_str("%25"),
            b' '..=b'~' => write!(f, "{}", char::from(*byte)),
            byte => write!(f, "%{byte:02X}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BadEscape, Prefix};

    #[test]
    fn escapes_stand_for_any_byte() {
        let bytes = |text: &str| Prefix::parse(text).map(|prefix| prefix.bytes);
        assert_eq!(bytes("billing/").unwrap(), b"billing/");
        assert_eq!(bytes("%00%fF%25é").unwrap(), [0, 255, b'%', 0xc3, 0xa9]);
        for (text, at) in [("%", 0), ("a%4", 1), ("a%4g", 1), ("%%25", 0), ("a%+1", 1)] {
            assert_eq!(bytes(text), Err(BadEscape { at }), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_prefix_is_read_as_it_is_shown(bytes: Vec<u8>) {
            let prefix = Prefix::new(bytes);
            prop_assert_eq!(Prefix::parse(&prefix.to_string()), Ok(prefix));
        }

        /// Against every key of up to three bytes of a small alphabet with both ends in it.
        #[test]
        fn a_range_is_covered_if_each_of_its_keys_is_contained(
            prefix in text(), start in text(), end in proptest::option::of(text())
        ) {
            let prefix = Prefix::new(prefix);
            let within = |key: &&Vec<u8>| *key >= &start && end.as_ref().is_none_or(|end| *key < end);
            let keys = keys();
            let mut inside = keys.iter().filter(within);
            let covers = prefix.covers(&start, end.as_deref());
            if covers {
                prop_assert!(inside.all(|key| prefix.contains(key)));
            } else if prefix.contains(&start) {
                // A key beyond the prefix proves it, perhaps a longer one than those tried: the end itself lies beyond.
                let beyond = end.as_ref().is_none_or(|end| !prefix.contains(end) && *end > start);
                prop_assert!(beyond);
            }
        }
    }

    const ALPHABET: [u8; 4] = [0, b'a', 254, 255];

    fn text() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(proptest::sample::select(ALPHABET.to_vec()), 0..4)
    }

    /// All keys of one to four letters of the alphabet.
    fn keys() -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = ALPHABET.iter().map(|letter| vec![*letter]).collect();
        let mut from = 0;
        for _ in 0..3 {
            let shorter = all[from..].to_vec();
            from = all.len();
            for key in shorter {
                all.extend(ALPHABET.iter().map(|letter| [key.as_slice(), &[*letter]].concat()));
            }
        }
        all
    }

    #[test]
    fn the_empty_prefix_and_one_of_the_greatest_bytes_have_no_end() {
        assert!(Prefix::new(vec![]).covers(b"", None));
        assert!(Prefix::new(vec![255, 255]).covers(&[255, 255], None));
        assert!(!Prefix::new(vec![255, 255]).covers(&[255], None));
        let a = Prefix::new(b"a".to_vec());
        assert!(a.covers(b"a", Some(b"b")));
        assert!(!a.covers(b"a", Some(b"b\0")));
        assert!(!a.covers(b"a", None));
        assert!(!a.covers(b"", Some(b"b")));
        assert!(Prefix::new(vec![b'a', 255]).covers(&[b'a', 255], Some(b"b")));
    }
}
