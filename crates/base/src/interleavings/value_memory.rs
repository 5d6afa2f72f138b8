//! What is held never exceeds its bound, and all of it comes back.

use std::sync::Arc;

use shuttle::thread;

use super::check;
use crate::value_memory::{FREE_BYTES, LargeValues};

#[test]
fn charges_stay_within_their_bound_and_come_back() {
    check(1, || {
        let unit = FREE_BYTES + 1;
        let values = LargeValues::new(3 * unit);
        let holders: Vec<_> = (0..3)
            .map(|holder| {
                let values = Arc::clone(&values);
                thread::spawn(move || {
                    for round in 0..2 {
                        let charge = values.charge(unit);
                        assert!(values.used() <= 3 * unit, "over the bound");
                        let Ok(Some(mut charge)) = charge else { continue };
                        let _no_room = charge.grow_to((1 + (holder + round) % 3) * unit);
                        let used = values.used();
                        assert!((unit..=3 * unit).contains(&used), "{used} with a charge held");
                    }
                })
            })
            .collect();
        holders.into_iter().for_each(|holder| holder.join().unwrap());
        assert_eq!(values.used(), 0);
        assert!(values.charge(3 * unit).is_ok(), "there is room for all again");
    });
}
