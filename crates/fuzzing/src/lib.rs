//! What the entries of the fuzzer share. An entry is a function of bytes that panics where a promise of the code that
//! reads them does not hold. `fuzz/` has a fuzzer find the bytes; the tests of each crate run the same functions on its
//! corpus and on mutations of it.
//!
//! An entry promises more than that nothing panics: what is taken reads the same when it is written again, what is
//! not is refused, and nothing is kept beyond its limit.
//!
//! `KVORUM_FUZZ_SECONDS` has each go on for so long; `KVORUM_TEST_SEED` repeats a run.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// A function that takes anything.
pub type FuzzTarget = fn(&[u8]);

/// Takes bytes off the front, as many as there are.
pub fn split<'a>(data: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (front, rest) = data.split_at_checked(count).unwrap_or((data, &[]));
    *data = rest;
    front
}

/// Takes a byte off the front; zero where there is none.
#[must_use]
pub fn byte(data: &mut &[u8]) -> u8 {
    split(data, 1).first().copied().unwrap_or_default()
}

/// Executions of a target where no time is given, or as many as fit into a few seconds.
const EXECUTIONS: u64 = 20_000;
const USUAL: Duration = Duration::from_secs(4);
/// Longest input.
const BYTES_MAX: usize = 4096;

/// SplitMix64.
struct FuzzRandom(u64);

impl FuzzRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end.max(1)
    }
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new("../../fuzz/corpus").join(name);
    let mut files: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", directory.display());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// One of the corpus with a few changes, as a fuzzer makes them.
fn mutation(random: &mut FuzzRandom, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(5) {
        let at = random.below(bytes.len() + 1);
        let until = (at + 1 + random.below(16)).min(bytes.len());
        match random.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.next() as u8,
            2 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'0', b' ', b'\n'][random.below(8)],
            3 => drop(bytes.drain(at..until)),
            4 => {
                let again = bytes[at..until].to_vec();
                bytes.splice(at..at, again);
            }
            5 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
            _ => {
                let noise: Vec<u8> = (0..random.below(16)).map(|_| random.next() as u8).collect();
                bytes.splice(at..at, noise);
            }
        }
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn run(target: FuzzTarget, name: &str, seed: u64, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("{name} broke: KVORUM_TEST_SEED={seed}, on {hex}");
        resume_unwind(panic);
    }
}

/// Runs an entry on its corpus in `fuzz/corpus`, then on mutations of it, from a seed that a failure prints.
///
/// # Panics
/// Where the entry does, and if there is no corpus.
pub fn holds(name: &str, target: FuzzTarget) {
    let number = |variable| std::env::var(variable).ok().and_then(|text: String| text.parse().ok());
    let limit = number("KVORUM_FUZZ_SECONDS").map(Duration::from_secs);
    let begin = Instant::now();
    let seed = number("KVORUM_TEST_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 32 | 17);
    let (corpus, mut random) = (corpus(name), FuzzRandom(seed));
    corpus.iter().for_each(|input| run(target, name, seed, input));
    let mut executions = 0;
    let more = |executions| limit.is_some() || executions < EXECUTIONS;
    while more(executions) && begin.elapsed() < limit.unwrap_or(USUAL) {
        run(target, name, seed, &mutation(&mut random, &corpus));
        executions += 1;
    }
    eprintln!("{name}: {executions} executions in {:?}", begin.elapsed());
}
