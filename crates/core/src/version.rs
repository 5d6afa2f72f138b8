//! Versions: hybrid logical clock and incarnation, totally ordered.
//!
//! The hybrid logical clock is that of Kulkarni et al., "Logical Physical Clocks" (2014), section 3,
//! in 48 bits of milliseconds since 1970 and a counter of 16 bits.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reading of the hybrid logical clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hlc(u64);

impl Hlc {
    /// Before every reading.
    pub const ZERO: Self = Self(0);

    /// The first reading of a millisecond (of which the low 48 bits count).
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis << 16)
    }

    /// A reading from its number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Its number: milliseconds in the high 48 bits, counter in the low 16.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0 >> 16
    }

    /// The next reading after `self` at wall time `wall_ms`: later than `self`, and not behind the wall.
    /// A counter that overflows carries into the milliseconds.
    #[must_use]
    pub fn tick(self, wall_ms: u64) -> Self {
        self.next().max(Self::from_millis(wall_ms))
    }

    /// The least reading greater than `self`.
    ///
    /// # Panics
    /// In the year 10889, when 48 bits of milliseconds end.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("48 bits of milliseconds last until 10889"))
    }
}

/// 32 random bits. Each run of a node draws one for its versions, so that none repeats. A data directory has another,
/// drawn when it is created, by which peers recognise a replaced disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u32);

/// When, and by which incarnation, a record was timestamped. Greater is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The timestamp.
    pub hlc: Hlc,
    /// The node that timestamped it.
    pub incarnation: Incarnation,
}

impl Version {
    /// Older than every timestamped version: what an absent key has where there is no GC watermark.
    pub const ZERO: Self = Self { hlc: Hlc::ZERO, incarnation: Incarnation(0) };
    /// Bytes of the encoding.
    pub const BYTES: usize = 12;

    /// The last version of a reading, at or above which no timestamp of that reading is; none of no reading.
    #[must_use]
    pub fn last_of(hlc: Hlc) -> Self {
        if hlc == Hlc::ZERO { Self::ZERO } else { Self { hlc, incarnation: Incarnation(u32::MAX) } }
    }

    /// Big-endian, so that byte order is version order.
    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let (hlc, incarnation) = out.split_at_mut(8);
        hlc.copy_from_slice(&self.hlc.raw().to_be_bytes());
        incarnation.copy_from_slice(&self.incarnation.0.to_be_bytes());
        out
    }

    /// The inverse of [`Version::encode`].
    #[must_use]
    pub fn decode(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        Self {
            hlc: Hlc(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
            incarnation: Incarnation(u32::from_be_bytes([i, j, k, l])),
        }
    }
}

/// `0123456789abcdef-01234567`: what stands in an `ETag` and in a receipt.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:08x}", self.hlc.raw(), self.incarnation.0)
    }
}
