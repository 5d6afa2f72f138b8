//! What the samples of a run come to.

use std::collections::BTreeMap;
use std::time::Duration;

use super::debt::of_second;
use super::sample::{NodeRow, NodeSecond, Sample, Series};
use crate::numbers::{float, index};

/// Of the time of a run between its first and last sample, at least: all requests are counted, not those between them.
const SAMPLED_SHARE: f64 = 0.9;

impl Series {
    /// What it comes to, for so many requests.
    pub(crate) fn row(&self, requests: u64) -> NodeRow {
        let per_request = |count| self.spent(count).filter(|_| requests > 0).map(|spent| spent / float(requests));
        let commits = self.spent(|sample| sample.commits.map(float)).filter(|commits| *commits > 0.0);
        let commit_seconds = self.spent(|sample| sample.commit_seconds);
        NodeRow {
            url: self.url.clone(),
            source: self.source,
            cpu_us_per_request: per_request(|sample| sample.cpu_seconds.map(|seconds| seconds * 1e6)),
            allocated_bytes_per_request: per_request(|sample| sample.allocated_bytes.map(float)),
            syscalls_per_request: self
                .calls_per_second
                .filter(|_| requests > 0)
                .map(|calls| calls * self.time.as_secs_f64() / float(requests)),
            sleeps_per_request: per_request(|sample| sample.switches.map(float)),
            disk_read_bytes_per_request: per_request(|sample| sample.disk_read_bytes.map(float)),
            block_reads_per_request: per_request(|sample| sample.block_reads.map(float)),
            hedges_per_request: per_request(|sample| sample.hedges.map(float)),
            commits_per_request: per_request(|sample| sample.commits.map(float)),
            commit_ms: commit_seconds.zip(commits).map(|(seconds, commits)| seconds * 1e3 / commits),
            resident_bytes_max: self.samples.iter().filter_map(|(_, sample)| sample.resident_bytes).max().unwrap_or(0),
            debt: self.debt(),
            seconds: self.samples.windows(2).filter_map(|two| self.second(two)).collect(),
        }
    }

    /// What it counted from the first sample to the last; none if these are not of the whole run.
    pub(super) fn spent(&self, count: fn(&Sample) -> Option<f64>) -> Option<f64> {
        let ((begin, first), (end, last)) = (self.samples.first()?, self.samples.last()?);
        let spent = count(last)? - count(first)?;
        // A node that was started anew counts from 0 again; of one that was silent at an end a part is missing.
        let is_whole = (*end - *begin).as_secs_f64() >= self.time.as_secs_f64() * SAMPLED_SHARE && spent >= 0.0;
        is_whole.then_some(spent)
    }

    fn second(&self, two: &[(Duration, Sample)]) -> Option<NodeSecond> {
        let [(before, old), (at, new)] = two else { return None };
        let spent = new.cpu_seconds? - old.cpu_seconds?;
        let time = at.saturating_sub(*before).as_secs_f64();
        let first = self.first_written()?;
        (spent >= 0.0 && time > 0.0).then(|| NodeSecond {
            at_s: at.as_secs_f64(),
            cpu: spent / time,
            resident_bytes: new.resident_bytes.unwrap_or(0),
            ..of_second(first, old, new)
        })
    }

    /// Those of each second that it showed: what lies between two samples is of the second in which their middle lies.
    fn slow_commits(&self) -> BTreeMap<usize, u64> {
        let slow = |sample: &Sample| Some(sample.commits?.saturating_sub(sample.quick_commits?));
        let mut told = BTreeMap::new();
        for two in self.samples.windows(2) {
            let [(before, old), (at, new)] = two else { continue };
            let Some((new, old)) = slow(new).zip(slow(old)) else { continue };
            let middle = (*before + *at) / 2;
            *told.entry(index(middle.as_secs())).or_default() += new.saturating_sub(old);
        }
        told
    }
}

/// Commits of all nodes that were slow, for each of so many seconds; none where no node shows them, or one that does
/// lacks that second.
pub(crate) fn slow_commits(nodes: &[Series], seconds: usize) -> Vec<Option<u64>> {
    let told: Vec<_> = nodes.iter().map(Series::slow_commits).filter(|told| !told.is_empty()).collect();
    let sum = |second| told.iter().map(|told| told.get(&second).copied()).sum::<Option<u64>>();
    (0..seconds).map(|second| sum(second).filter(|_| !told.is_empty())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Sample, Series, slow_commits};
    use crate::nodes::Source;

    /// Samples at these times, in ms, by each of which so many commits were slow.
    fn series(samples: &[(u64, Option<u64>)]) -> Series {
        let sample = |(at, slow): &(u64, Option<u64>)| {
            let sample = Sample { commits: slow.map(|slow| 100 + slow), quick_commits: Some(100), ..Sample::default() };
            (Duration::from_millis(*at), sample)
        };
        Series {
            url: String::new(),
            source: Source::Proc,
            time: Duration::from_millis(3300),
            samples: samples.iter().map(sample).collect(),
            calls_per_second: None,
        }
    }

    #[test]
    fn slow_commits_are_of_the_second_in_which_most_of_the_time_between_two_samples_lies() {
        let late = series(&[(0, Some(5)), (1000, Some(6)), (2600, Some(8)), (3000, Some(12)), (3300, Some(20))]);
        let told = |nodes: &[&Series]| slow_commits(&nodes.iter().map(|of| (*of).clone()).collect::<Vec<_>>(), 4);
        assert_eq!(told(&[&late]), [Some(1), Some(2), Some(4), Some(8)]);
        assert_eq!(told(&[&late, &late]), [Some(2), Some(4), Some(8), Some(16)]);
        let silent = series(&[(0, Some(0)), (1000, Some(0)), (2000, None), (3000, Some(0)), (3300, Some(1))]);
        assert_eq!(told(&[&late, &silent]), [Some(1), None, None, Some(9)], "it may have had some then");
        let no_kvorum = series(&[(0, None), (1000, None), (3300, None)]);
        assert_eq!(told(&[&late, &no_kvorum]), [Some(1), Some(2), Some(4), Some(8)]);
        assert_eq!(told(&[&no_kvorum]), [None; 4]);
        let restarted = series(&[(0, Some(9)), (1000, Some(0)), (2000, Some(1))]);
        assert_eq!(slow_commits(&[restarted], 2), [Some(0), Some(1)]);
    }
}
