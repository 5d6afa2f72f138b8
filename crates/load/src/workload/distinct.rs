//! Which keys a batch has already: a key that is in it twice is refused with all of it.

use crate::numbers::index;
use crate::random::mix;

/// Keys, each once. Forgets them all at once, and allocates nothing after it was made.
#[derive(Debug)]
pub(crate) struct KeySet {
    /// Each with the round in which it was taken; those of earlier rounds are free.
    slots: Vec<(u64, u64)>,
    round: u64,
    taken: usize,
}

impl KeySet {
    /// Room for so many.
    pub(crate) fn new(keys: usize) -> Self {
        // Half of it stays free, so that a free place is near.
        Self { slots: vec![(0, 0); (keys * 2 + 1).next_power_of_two()], round: 1, taken: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.round += 1;
        self.taken = 0;
    }

    /// Whether it was not there yet; it is now.
    pub(crate) fn insert(&mut self, key: u64) -> bool {
        assert!(self.taken * 2 < self.slots.len(), "no more keys than it was made for");
        let (slots, round) = (self.slots.len(), self.round);
        let from = index(mix(key)) % slots;
        for place in (from..slots).chain(0..from) {
            let slot = self.slots.get_mut(place).expect("a place below their number");
            if slot.0 != round {
                *slot = (round, key);
                self.taken += 1;
                return true;
            }
            if slot.1 == key {
                return false;
            }
        }
        unreachable!("half of the places are free")
    }
}

#[cfg(test)]
mod tests {
    use super::KeySet;

    #[test]
    fn a_key_is_new_once_until_all_are_forgotten() {
        let mut keys = KeySet::new(1000);
        for _ in 0..3 {
            assert!((0..1000).all(|key| keys.insert(key * 7)));
            assert!((0..1000).all(|key| !keys.insert(key * 7)));
            keys.clear();
        }
    }
}
