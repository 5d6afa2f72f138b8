//! What is read from clients, peers, files and operators, given anything: each target is a function of bytes that
//! panics where a promise of the code that reads them does not hold. `fuzz/` has a fuzzer find the bytes; the tests
//! here run the same functions on its corpus and on mutations of it.
//!
//! A target promises more than that nothing panics: what is taken reads the same when it is written again, what is
//! not is refused, and nothing is kept beyond its limit.

pub use crate::data_dir::fuzzing::notes;
pub use crate::hints::fuzzing::hints;
pub use crate::http::fuzzing::{connections, queries};

mod operators;
mod wire;

pub use operators::config;
pub use wire::{frames, handshakes, records, repair};

/// A function that takes anything.
pub type Target = fn(&[u8]);

/// All of them, by the names that they have in `fuzz/`.
pub const TARGETS: [(&str, Target); 9] = [
    ("config", config),
    ("connections", connections),
    ("frames", frames),
    ("handshakes", handshakes),
    ("hints", hints),
    ("notes", notes),
    ("queries", queries),
    ("records", records),
    ("repair", repair),
];

/// Takes bytes off the front, as many as there are.
fn split<'a>(data: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (front, rest) = data.split_at_checked(count).unwrap_or((data, &[]));
    *data = rest;
    front
}

/// Takes a byte off the front; zero where there is none.
fn byte(data: &mut &[u8]) -> u8 {
    split(data, 1).first().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
