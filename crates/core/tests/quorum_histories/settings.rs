//! What a history is like: how many take part, how bad the network is, how far the clocks are apart.

use crate::chance::Chance;
use crate::monitor::CLIENTS_MAX;

/// Chances are in a thousand, per millisecond or per message.
#[derive(Clone, Debug)]
pub struct Settings {
    pub from: u8,
    pub clients: usize,
    pub operations_max: usize,
    /// One coordinator each: how far its wall clock is off.
    pub skew_ms: Vec<i64>,
    /// Of an operation; retention is as long.
    pub deadline_ms: u64,
    pub drops: u64,
    pub duplicates: u64,
    pub delays: u64,
    pub failures: u64,
    pub restarts: u64,
    pub repairs: u64,
    pub hints: u64,
    pub gc_watermarks: u64,
    pub writes: u64,
    pub deletes: u64,
    /// Whether `ack` may be more than the majority.
    pub acks_vary: bool,
    /// Whether coordinators adopt the clocks that answers carry.
    pub clocks_are_heard: bool,
    /// A store waits for a connection to be made, and goes to whatever run of its replica is there then.
    pub deferrals: u64,
    /// Values that end.
    pub ends: u64,
    /// How often a replica's clock can follow one that has passed an end.
    pub follows: u64,
}

impl Settings {
    pub fn draw(seed: u64, chance: &mut Chance) -> Self {
        let skew_max = chance.pick(&[0, 5, 50, 300]);
        let coordinators = 2 + chance.below(3);
        let skew = |chance: &mut Chance| i64::try_from(chance.below(2 * skew_max + 1)).unwrap();
        let skew_ms = (0..coordinators).map(|_| skew(chance) - i64::try_from(skew_max).unwrap()).collect();
        Self {
            from: chance.pick(&[3, 3, 3, 2, 4, 5]),
            clients: 2 + chance.index(CLIENTS_MAX - 1),
            operations_max: 5 + chance.index(6),
            skew_ms,
            deadline_ms: chance.pick(&[20, 40, 80, 150]),
            drops: chance.pick(&[0, 0, 30, 150]),
            duplicates: chance.pick(&[0, 100]),
            delays: chance.pick(&[0, 100, 300, 600]),
            failures: chance.pick(&[0, 0, 20, 100]),
            restarts: chance.pick(&[0, 5, 20]),
            repairs: chance.pick(&[0, 0, 10, 40]),
            hints: chance.pick(&[0, 10, 40]),
            gc_watermarks: chance.pick(&[0, 50, 150, 500]),
            writes: chance.pick(&[300, 500, 700]),
            deletes: chance.pick(&[0, 200, 500]),
            acks_vary: chance.happens(330),
            clocks_are_heard: chance.happens(500),
            // By its number and not by chance: the other histories stay as they were.
            deferrals: if seed % 4 == 3 { 200 } else { 0 },
            ends: if seed % 2 == 1 { 500 } else { 0 },
            follows: if seed % 8 < 6 { 1000 } else { 700 },
        }
    }
}
