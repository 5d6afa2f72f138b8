//! What happened, as a hash over all of it and, if asked for, as text.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What becomes of the text of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceText {
    /// Each is printed.
    Printed,
    /// It is not even made.
    Omitted,
}

/// Every event of a run goes through here.
#[derive(Debug)]
pub struct Trace {
    hash: AtomicU64,
    begin: Instant,
    text: TraceText,
}

impl Trace {
    /// Begins now.
    #[must_use]
    pub fn new(text: TraceText) -> Self {
        Self { hash: AtomicU64::new(0), begin: Instant::now(), text }
    }

    /// Virtual time since the run began.
    pub fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// The hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash.load(Ordering::Relaxed)
    }

    /// An event that is known by its text.
    pub fn event(&self, text: &str) {
        self.bytes(text.as_bytes(), || text.to_owned());
    }

    /// An event that is known by its bytes, and its text where it is asked for.
    pub fn bytes(&self, bytes: &[u8], text: impl FnOnce() -> String) {
        let now = self.now();
        let micros = u64::try_from(now.as_micros()).expect("runs are short");
        self.hash.store(xxh3_64_with_seed(bytes, self.hash().rotate_left(1) ^ micros), Ordering::Relaxed);
        if self.text == TraceText::Printed {
            println!("{:>10.3} {}", now.as_secs_f64(), text());
        }
    }
}
