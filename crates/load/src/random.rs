//! Chance, from a seed: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).

use crate::numbers::float;

/// A stream of numbers that follows from its seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `bound`, evenly but for one in 2^64; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(bound);
        u64::try_from(product >> 64).expect("the upper half of 128 bits")
    }

    /// In [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        float(self.next() >> 11) / float(1 << 53)
    }
}

/// A bijection of 64 bits without a pattern.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
