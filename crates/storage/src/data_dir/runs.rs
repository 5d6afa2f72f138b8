//! The runs of a data directory, and where each began: they show what was lost.
//!
//! A peer remembers the last run that it received, and how far the store had got in that. What came next must begin
//! with no less, or the directory is an older copy. *What came next* may be long ago, when the peer was away: so each
//! run is written down before it serves. A run that is not in the list was not of this directory, or is older than all
//! that are kept: then the oldest is what came next.

use super::checksum::{with_checksum, without_checksum};
use super::run::{Run, RunId};

/// Runs that are kept, the newest.
const RUNS_MAX: usize = 256;

/// The runs of a directory, oldest first; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    earlier: Vec<Run>,
    present: Run,
}

impl Runs {
    /// What was written down, if anything, and then the present run.
    pub(super) fn new(mut earlier: Vec<Run>, present: Run) -> Self {
        let excess = (earlier.len() + 1).saturating_sub(RUNS_MAX);
        earlier.drain(..excess);
        Self { earlier, present }
    }

    /// The last of them stays the present one: the next could not be written down.
    pub(super) fn again(mut earlier: Vec<Run>) -> Option<Self> {
        let present = earlier.pop()?;
        Some(Self { earlier, present })
    }

    /// The present run.
    #[must_use]
    pub fn present(&self) -> Run {
        self.present
    }

    /// The first run that a peer has missed whose last is `met`; nothing if that is the present one.
    #[must_use]
    pub fn after(&self, met: RunId) -> Option<Run> {
        let all = || self.earlier.iter().chain([&self.present]);
        let next = all().position(|run| run.id == met).map_or(0, |index| index + 1);
        all().nth(next).copied()
    }

    pub(super) fn text(&self) -> String {
        let line = |run: &Run| format!("{:016x} {}\n", run.id.0, run.recovered);
        with_checksum(&self.earlier.iter().chain([&self.present]).map(line).collect::<String>())
    }

    /// Nothing, unless each line is a run.
    pub(super) fn parse(text: &str) -> Option<Vec<Run>> {
        let run = |line: &str| {
            let (id, recovered) = line.split_once(' ')?;
            Some(Run { id: RunId(u64::from_str_radix(id, 16).ok()?), recovered: recovered.parse().ok()? })
        };
        without_checksum(text)?.lines().map(run).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::data_dir::runs::*;

    fn run(id: u64, recovered: u64) -> Run {
        Run { id: RunId(id), recovered }
    }

    #[test]
    fn who_met_a_run_missed_the_one_after_it_and_a_stranger_the_first() {
        let runs = Runs::new(vec![run(1, 0), run(2, 50)], run(3, 70));
        assert_eq!(runs.after(RunId(1)), Some(run(2, 50)));
        assert_eq!(runs.after(RunId(2)), Some(run(3, 70)));
        assert_eq!(runs.after(RunId(3)), None);
        assert_eq!(runs.after(RunId(9)), Some(run(1, 0)));
    }

    #[test]
    fn the_newest_are_kept_and_read_back() {
        let earlier: Vec<Run> = (0..1000).map(|number| run(number, 10 * number)).collect();
        let runs = Runs::new(earlier, run(1000, 10_000));
        let read = Runs::parse(&runs.text()).unwrap();
        assert_eq!(read.len(), RUNS_MAX);
        assert_eq!(read.last(), Some(&run(1000, 10_000)));
        assert_eq!(Runs::again(read).unwrap(), runs);
        assert_eq!(Runs::again(Vec::new()), None);
    }
}
