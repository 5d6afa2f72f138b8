//! Values, made from their key and their writer: every fill with the same options writes the same, and every run, which
//! writes other ones. So a fill that is taken up again does not take what a run wrote here and there for its own.

use std::fmt;
use std::str::FromStr;

use crate::numbers::{float, index, whole};
use crate::random::{Random, mix};

/// The longest value.
pub const VALUE_BYTES_MAX: u64 = 64 << 20;
/// Values begin at different places of the pool.
const OFFSETS: u64 = 1 << 20;

/// How long values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSize {
    /// All alike.
    Fixed(u64),
    /// From the first to the second, equally often.
    Uniform(u64, u64),
    /// Exponential with this mean, cut at ten times it.
    Exponential(u64),
}

impl FromStr for ValueSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not 100, 4KiB, 50..150 or exp:100, of at most 64 MiB");
        let size = if let Some(mean) = text.strip_prefix("exp:") {
            Self::Exponential(bytes(mean).ok_or_else(wrong)?)
        } else if let Some((least, most)) = text.split_once("..") {
            Self::Uniform(bytes(least).ok_or_else(wrong)?, bytes(most).ok_or_else(wrong)?)
        } else {
            Self::Fixed(bytes(text).ok_or_else(wrong)?)
        };
        let ordered = !matches!(size, Self::Uniform(least, most) if least > most);
        if ordered && size.most() <= VALUE_BYTES_MAX { Ok(size) } else { Err(wrong()) }
    }
}

impl fmt::Display for ValueSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Uniform(least, most) => write!(f, "{least}..{most}"),
            Self::Exponential(mean) => write!(f, "exp:{mean}"),
        }
    }
}

/// A number of bytes with an optional unit: decimal `kB`, `MB`, `GB`, or binary `KiB`, `MiB`, `GiB`.
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    if let Ok(number) = digits.parse::<u64>() {
        return number.checked_mul(unit);
    }
    let number = digits.parse::<f64>().ok()?;
    (0.0..1e9).contains(&number).then(|| whole((number * float(unit)).round()))
}

impl ValueSize {
    /// Bytes of the longest.
    #[must_use]
    pub fn most(self) -> u64 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform(_, most) => most,
            Self::Exponential(mean) => mean.saturating_mul(10),
        }
    }

    /// Bytes on average.
    #[must_use]
    pub fn mean(self) -> u64 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform(least, most) => least.midpoint(most),
            Self::Exponential(mean) => mean,
        }
    }

    /// Bytes of the value of the key with this hash.
    fn of(self, hash: u64) -> u64 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform(least, most) => least + Random::new(hash).below(most - least + 1),
            Self::Exponential(mean) => {
                let drawn = -(1.0 - Random::new(hash).unit()).ln() * float(mean);
                whole(drawn).min(self.most())
            }
        }
    }
}

/// The values of a run.
#[derive(Debug)]
pub(crate) struct Values {
    size: ValueSize,
    /// Every value is a piece of it.
    pool: Vec<u8>,
    writer: Writer,
}

/// Whose values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    Fill,
    Run,
}

impl Values {
    /// `compressible`: general-purpose compression makes them about four times smaller; otherwise not at all.
    pub(crate) fn new(size: ValueSize, compressible: bool, writer: Writer) -> Self {
        let length = index(size.most() + OFFSETS);
        let mut random = Random::new(0x6b76_6f72_756d);
        let mut pool = Vec::with_capacity(length + 64);
        while pool.len() < length {
            let (first, second) = (random.next().to_le_bytes(), random.next().to_le_bytes());
            for _ in 0..if compressible { 4 } else { 1 } {
                pool.extend_from_slice(&first);
                pool.extend_from_slice(&second);
            }
        }
        Self { size, pool, writer }
    }

    /// The value of a key, always the same.
    pub(crate) fn of(&self, key: u64) -> &[u8] {
        let salt = match self.writer {
            Writer::Fill => 0x7661_6c75_6573,
            Writer::Run => 0x7275_6e73,
        };
        let hash = mix(key.wrapping_add(salt));
        let from = index(hash % OFFSETS);
        let length = index(self.size.of(hash));
        self.pool.get(from..from + length).expect("the pool is as long as the farthest offset and the longest value")
    }
}

#[cfg(test)]
mod tests {
    use super::{ValueSize, Values, Writer, bytes};

    #[test]
    fn sizes_are_as_asked() {
        let lengths = |text: &str| -> Vec<usize> {
            let values = Values::new(text.parse().unwrap(), false, Writer::Fill);
            (0..10_000).map(|key| values.of(key).len()).collect()
        };
        assert!(lengths("100").iter().all(|length| *length == 100));
        let uniform = lengths("50..150");
        assert!(uniform.iter().all(|length| (50..=150).contains(length)));
        assert!(uniform.contains(&50) && uniform.contains(&150));
        let exponential = lengths("exp:100");
        let mean = exponential.iter().sum::<usize>() / exponential.len();
        assert!((95..=105).contains(&mean) && exponential.iter().all(|length| *length <= 1000), "{mean}");
        assert!(lengths("0").iter().all(|length| *length == 0));
    }

    #[test]
    fn a_key_always_has_the_same_value_and_others_have_others() {
        let (one, other) = (
            Values::new(ValueSize::Fixed(100), false, Writer::Fill),
            Values::new(ValueSize::Fixed(100), false, Writer::Fill),
        );
        assert_eq!(one.of(5), other.of(5));
        assert_ne!(one.of(5), one.of(6));
        assert_ne!(one.of(5), Values::new(ValueSize::Fixed(100), false, Writer::Run).of(5));
    }

    #[test]
    fn a_compressible_value_repeats_itself() {
        let values = Values::new(ValueSize::Fixed(4096), true, Writer::Fill);
        let pieces: std::collections::BTreeSet<&[u8]> = values.of(1).windows(16).collect();
        assert!(pieces.len() < 4096 / 2, "{} different pieces of 16 bytes", pieces.len());
        let values = Values::new(ValueSize::Fixed(4096), false, Writer::Fill);
        assert_eq!(values.of(1).windows(16).collect::<std::collections::BTreeSet<_>>().len(), 4096 - 15);
    }

    #[test]
    fn sizes_have_units() {
        for (text, expected) in
            [("1.2GB", 1_200_000_000), ("4KiB", 4096), ("100", 100), ("100B", 100), ("0.5MB", 500_000)]
        {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        for bad in ["", "GB", "-1", "1.2.3", "1TBs", "nan", "1e99GB"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
        for bad in ["5..", "9..1", "exp:", "65MiB", "exp:60MiB"] {
            assert!(bad.parse::<ValueSize>().is_err(), "{bad}");
        }
    }
}
