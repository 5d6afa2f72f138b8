//! A replica: the production decision over a store that survives restarts and a memory that does not.

use kvorum_core::quorum::replica::{Decision, KnownVersion, Origin, Recent, decide};
use kvorum_core::quorum::{Current, StoreAnswer};
use kvorum_core::version::{Hlc, Version};
use kvorum_core::{Key, Record};

use crate::rules::Without;

/// The state of one replica for the one key. Time is in milliseconds since the history began.
#[derive(Clone, Debug)]
pub struct Node {
    /// Durable: what is stored, the GC watermark of its partition, the fence, and what is proven converged.
    pub record: Option<Record>,
    pub gc_watermark: Version,
    pub fence: Version,
    pub watermark: Version,
    /// In memory: nothing newer was applied.
    mark: Version,
    /// In memory: what was accepted, and when.
    recent: Vec<(Version, u64)>,
    /// In memory: the hybrid clock.
    hlc: Hlc,
    /// Durable: the clock's bound.
    bound: Hlc,
}

/// How far ahead of its use the bound is raised.
const LEAD_MS: u64 = 10;

impl Node {
    pub fn new() -> Self {
        Self {
            record: None,
            gc_watermark: Version::ZERO,
            fence: Version::ZERO,
            watermark: Version::ZERO,
            mark: Version::ZERO,
            recent: vec![],
            hlc: Hlc::ZERO,
            bound: Hlc::ZERO,
        }
    }

    /// The hybrid clock that its answers carry: what of it is durable.
    pub fn clock(&self) -> Hlc {
        self.hlc.min(self.bound)
    }

    /// Brings its clock, in memory, to the present.
    pub fn tick(&mut self, wall_ms: u64) {
        self.hlc = self.hlc.max(Hlc::from_millis(wall_ms));
    }

    /// Follows a reading, durably, as far as it can.
    pub fn follow(&mut self, reading: Hlc) {
        self.hlc = self.hlc.max(reading);
        self.raise_bound(self.hlc);
    }

    fn raise_bound(&mut self, to: Hlc) {
        if to > self.bound {
            self.bound = Hlc::from_millis(to.millis() + LEAD_MS);
        }
    }

    /// Promises to accept no straggler up to this, which its clock is not behind.
    pub fn raise_fence(&mut self, fence: Version) {
        self.fence = fence;
        self.follow(fence.hlc);
    }

    pub fn current(&self) -> Current {
        self.record.as_ref().map_or(Current::GcWatermark(self.gc_watermark), |record| Current::Record(record.version()))
    }

    /// Loses what was in memory.
    pub fn restart(&mut self) {
        self.recent.clear();
        // The clock and marks start at the persisted bound.
        self.hlc = self.bound;
        self.mark.hlc = self.mark.hlc.max(self.bound);
    }

    /// Accepts or refuses a record.
    pub fn store(
        &mut self,
        record: &Record,
        origin: Origin,
        now: u64,
        retention: u64,
        without: Without,
    ) -> StoreAnswer {
        let version = record.version();
        self.hlc = self.hlc.max(version.hlc);
        let fence = if without == Without::Fence { Version::ZERO } else { self.fence };
        let memory = || self.memory(version, now, retention, without);
        let decision = match decide(version, origin, KnownVersion::AtMost(self.mark), fence, memory) {
            Decision::LookUp => decide(version, origin, KnownVersion::Exactly(self.current()), fence, memory),
            decision => decision,
        };
        match decision {
            Decision::Answer(answer) => answer,
            Decision::Apply => {
                self.raise_bound(version.hlc);
                self.record = Some(record.clone());
                self.mark = self.mark.max(version);
                self.recent.retain(|(_, at)| now - at <= retention);
                self.recent.push((version, now));
                StoreAnswer::Accepted
            }
            Decision::LookUp => unreachable!("what is held was looked up"),
        }
    }

    fn memory(&self, version: Version, now: u64, retention: u64, without: Without) -> Recent {
        let remembered = self.recent.iter().any(|(other, at)| *other == version && now - at <= retention);
        match () {
            () if without == Without::Recent => Recent::NotAccepted,
            () if remembered => Recent::Accepted,
            () => Recent::NotAccepted,
        }
    }

    /// Raises the GC watermark to what is proven converged, and drops a deletion at or below it, or what ended before.
    pub fn drop_tombstone(&mut self, without: Without) {
        if without != Without::Convergence {
            self.gc_watermark = self.gc_watermark.max(self.watermark);
            self.mark = self.mark.max(self.gc_watermark);
        }
        let droppable = |record: &Record| {
            let end_of_time = without == Without::EndBelowGcWatermark && record.version() <= self.gc_watermark;
            let now_ms = if end_of_time { u64::MAX } else { self.gc_watermark.hlc.millis() };
            record.is_deleted(|| now_ms) && (record.version() <= self.gc_watermark || without == Without::Convergence)
        };
        if self.record.as_ref().is_some_and(droppable) {
            self.record = None;
        }
    }
}

/// The one key of every history.
pub fn key() -> Key {
    Key::new(bytes::Bytes::from_static(b"key")).unwrap()
}
