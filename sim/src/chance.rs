//! Seeded randomness: the same seed, the same run.

use std::ops::Range;
use std::time::Duration;

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub struct SimRandom(u64);

impl SimRandom {
    /// A source of its own for each purpose, so that one purpose does not disturb another's draws.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut chance = Self(seed ^ purpose.wrapping_mul(0xa076_1d64_78bd_642f));
        chance.bits();
        chance
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// An index of something of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u64::try_from(length).expect("a length fits"))).expect("below a length")
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// One of several, each as often as its weight says.
    pub fn weighted<T: Copy>(&mut self, from: &[(u64, T)]) -> T {
        let mut drawn = self.below(from.iter().map(|(weight, _)| weight).sum());
        for (weight, item) in from {
            match drawn.checked_sub(*weight) {
                None => return *item,
                Some(rest) => drawn = rest,
            }
        }
        unreachable!("a draw is below the sum of the weights")
    }

    /// True so many times in a thousand.
    pub fn happens(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// A time within a range of milliseconds.
    pub fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(range.start + self.below(range.end - range.start))
    }

    /// In a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}
