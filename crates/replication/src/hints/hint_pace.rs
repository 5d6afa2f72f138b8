//! How fast hints go to one node: by their bytes, by what each costs beside them, and slower while requests arrive.

use std::time::Duration;

use kvorum_base::cpu_share::CpuShare;
use kvorum_core::hints::SendPace;
use kvorum_core::{Key, Record};

/// What a hint costs beside its bytes, as bytes: 20 µs of processor time on both nodes together (decision 0041).
const HINT_BYTES: usize = 512;

pub(super) struct HintPace {
    pace: SendPace,
    cpu_share: CpuShare,
}

impl HintPace {
    /// At most `rate_max` bytes a second.
    pub(super) fn new(rate_max: u64, cpu_share: CpuShare) -> Self {
        Self { pace: SendPace::new(rate_max), cpu_share }
    }

    /// Takes the room for these hints; how long to wait before they are sent.
    pub(super) fn take(&mut self, now: Duration, hints: &[(Key, Record)]) -> Duration {
        let cost = hints.iter().map(|(key, record)| key.as_bytes().len() + record.bytes().len() + HINT_BYTES).sum();
        self.pace.take(now, self.cpu_share.charge(cost))
    }

    /// A page was answered within `latency` of its last hint.
    pub(super) fn note(&mut self, now: Duration, latency: Duration) {
        self.pace.note(now, latency);
    }

    /// The node refuses, or is gone.
    pub(super) fn slow_down(&mut self, now: Duration) {
        self.pace.slow_down(now);
    }

    /// Bytes a second now, those that each hint counts more included.
    pub(super) fn rate(&self) -> u64 {
        // Of so many bytes, because a charge is a whole number.
        const BYTES: u16 = 1 << 15;
        let charge = u64::try_from(self.cpu_share.charge(usize::from(BYTES))).unwrap_or(u64::MAX);
        self.pace.rate().saturating_mul(u64::from(BYTES)) / charge
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;
    use kvorum_core::{Hlc, Incarnation, Version};

    use crate::hints::hint_pace::*;

    #[test]
    fn a_hint_is_charged_more_than_its_bytes_and_more_again_while_requests_arrive() {
        let key = Key::new(Bytes::from_static(b"k")).unwrap();
        let version = Version { hlc: Hlc::from_raw(1), incarnation: Incarnation(1) };
        let record = Record::tombstone(&key, version, 3);
        let cost = (1 + record.bytes().len() + HINT_BYTES) as u64;
        let hints = vec![(key, record); 100];
        let now = Duration::from_secs(1);
        // How long the next page waits for one that was sent at once.
        let wait = |share: &CpuShare| {
            let mut pace = HintPace::new(cost * 100, share.clone());
            pace.take(now, &hints);
            (pace.take(now, &[]).as_millis(), pace.rate() / cost)
        };
        let share = CpuShare::new(2);
        assert_eq!(wait(&share), (900, 100), "a second, of which a tenth may go at once");
        share.note_request();
        assert_eq!(wait(&share), (49_900, 2));
        assert_eq!(wait(&CpuShare::whole()), (900, 100));
        let most = CpuShare::new(80);
        most.note_request();
        assert_eq!(wait(&most), (1_150, 80), "a share that a core does not have several times");
    }
}
