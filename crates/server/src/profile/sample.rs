//! What can be asked for, and what comes of it.

use std::collections::BTreeMap;
use std::time::Duration;

/// The longest profile.
pub(crate) const SECONDS_MAX: u32 = 120;
/// The most samples of a thread in a second that it runs.
pub(crate) const FREQUENCY_MAX: u32 = 999;
/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleKind {
    /// Processor time, in samples.
    Cpu,
    /// Bytes allocated, freed since or not.
    Alloc,
    /// Time spent waiting for locks, in queues and in the engine, in microseconds.
    Lock,
}

impl SampleKind {
    pub(crate) const ALL: [Self; 3] = [Self::Cpu, Self::Alloc, Self::Lock];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Alloc => "alloc",
            Self::Lock => "lock",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Cpu => "samples",
            Self::Alloc => "bytes",
            Self::Lock => "microseconds",
        }
    }
}

/// What is asked for, within its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProfileRequest {
    pub(crate) kind: SampleKind,
    /// How long.
    pub(crate) time: Duration,
    /// Samples a second, of processor time.
    pub(crate) frequency: u32,
}

/// Values by stack, from the outermost frame to the innermost.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    pub(crate) stacks: BTreeMap<String, u64>,
    /// How many measurements that is made of.
    pub(crate) samples: u64,
    /// Of them, those whose stack does not reach down to where its thread began.
    pub(crate) truncated: u64,
    /// What there was no room for, beside these.
    pub(crate) lost: u64,
    /// How long it took.
    pub(crate) time: Duration,
    /// What a reader of it has to know.
    pub(crate) note: String,
}

impl Profile {
    /// Adds one stack. Frames have their `;` replaced.
    pub(super) fn add<'a>(&mut self, frames: impl Iterator<Item = &'a str>, value: u64) {
        let mut stack = String::new();
        for frame in frames {
            if !stack.is_empty() {
                stack.push(';');
            }
            stack.extend(frame.chars().map(|sign| match sign {
                ';' => ':',
                sign if sign.is_control() => ' ',
                sign => sign,
            }));
        }
        if value > 0 {
            *self.stacks.entry(stack).or_default() += value;
        }
    }
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("another profile is being taken")]
    Busy,
    #[error("the profile was given up: it is needed no more")]
    Unwanted,
    #[error("{0}")]
    Impossible(String),
}

/// Lets the time of the profile pass, with something to do at every tick; how long it was.
pub(super) type SamplingWait<'a> = dyn FnMut(&mut dyn FnMut() -> Result<(), Refusal>) -> Result<Duration, Refusal> + 'a;
