//! A replica of a key that moves: the production decision, and what of a step it remembers.

use kvorum_core::quorum::replica::{Decision, KnownVersion, Origin, Recent, decide};
use kvorum_core::quorum::{Current, Held, ReadAnswer, StoreAnswer, Wanted};
use kvorum_core::version::{Hlc, Version};
use kvorum_core::{Key, Record};

use crate::layouts::{KeyLayout, NODES, gained, has};
use crate::without::Without;

/// The state of one replica for the one key.
#[derive(Clone, Debug)]
pub struct MovingReplica {
    node: usize,
    /// Durable, as all but the memory below.
    pub record: Option<Record>,
    /// The newest layout that it knows.
    pub installed: usize,
    /// It serves no frame of an epoch before this.
    pub bar: usize,
    /// The epoch of the latest pass that it has stored.
    synced: usize,
    /// Not below anything that it has applied.
    clock: Hlc,
    /// In memory: nothing newer was applied.
    mark: Version,
    /// In memory: what was accepted, and when.
    recent: Vec<(Version, u64)>,
}

impl MovingReplica {
    pub fn new(node: usize) -> Self {
        Self {
            node,
            record: None,
            installed: 0,
            bar: 0,
            synced: 0,
            clock: Hlc::ZERO,
            mark: Version::ZERO,
            recent: vec![],
        }
    }

    pub fn clock(&self) -> Hlc {
        self.clock
    }

    /// Loses what was in memory. The mark starts at the clock's durable bound.
    pub fn restart(&mut self, without: Without) {
        self.recent.clear();
        self.mark = self.mark.max(Version::last_of(self.clock));
        if without == Without::BarIsDurable {
            self.bar = 0;
        }
    }

    /// Installs the layout of a frame, if it is newer. False if the frame is below the bar.
    pub fn admits(&mut self, epoch: usize, without: Without) -> bool {
        if epoch < self.bar && without != Without::EpochIsChecked {
            return false;
        }
        self.installed = self.installed.max(epoch);
        true
    }

    /// Whether the key came by a step, and what was there before has not.
    pub fn lacks_sync(&self, chain: &[KeyLayout]) -> bool {
        gained(chain, self.installed, self.node).is_some_and(|epoch| self.synced < epoch)
    }

    /// Whether the step has flipped, as far as it knows, before it was synced.
    pub fn abstains(&self, chain: &[KeyLayout]) -> bool {
        has(chain[self.installed].now, self.node) && self.lacks_sync(chain)
    }

    /// Stores what a pass of this epoch has found; whether it, or something newer, is there now.
    pub fn sync(
        &mut self,
        newest: Option<&Record>,
        epoch: usize,
        chain: &[KeyLayout],
        (now, retention): (u64, u64),
    ) -> bool {
        let is_below_bar = epoch < self.bar;
        self.installed = self.installed.max(epoch);
        if let Some(record) = newest {
            if !is_below_bar {
                self.store(record, Origin::Repair, now, retention);
            }
            if self.current().version() < record.version() {
                return false;
            }
        }
        if gained(chain, self.installed, self.node).is_some_and(|gained| gained <= epoch) {
            self.synced = self.synced.max(epoch);
        }
        true
    }

    fn current(&self) -> Current {
        let none = Current::GcWatermark(Version::ZERO);
        self.record.as_ref().map_or(none, |record| Current::Record(record.version()))
    }

    /// Accepts or refuses a record.
    pub fn store(&mut self, record: &Record, origin: Origin, now: u64, retention: u64) -> StoreAnswer {
        let version = record.version();
        self.clock = self.clock.max(version.hlc);
        let remembered = self.recent.iter().any(|(other, at)| *other == version && now - at <= retention);
        let recent = || if remembered { Recent::Accepted } else { Recent::NotAccepted };
        let decision = match decide(version, origin, KnownVersion::AtMost(self.mark), Version::ZERO, recent) {
            Decision::LookUp => decide(version, origin, KnownVersion::Exactly(self.current()), Version::ZERO, recent),
            decision => decision,
        };
        match decision {
            Decision::Answer(answer) => answer,
            Decision::Apply => {
                self.record = Some(record.clone());
                self.mark = self.mark.max(version);
                self.recent.push((version, now));
                StoreAnswer::Accepted
            }
            Decision::LookUp => unreachable!("what is held was looked up"),
        }
    }

    pub fn look(&self, wanted: Wanted) -> ReadAnswer<Record> {
        match self.record.clone() {
            Some(record) if wanted != Wanted::Record => {
                ReadAnswer::Version { version: record.version(), from: u8::try_from(NODES).unwrap() }
            }
            Some(record) => ReadAnswer::Held(Held::Record(record)),
            None => ReadAnswer::Held(Held::Absent { gc_watermark: Version::ZERO }),
        }
    }
}

/// The one key of every history.
pub fn key() -> Key {
    Key::new(bytes::Bytes::from_static(b"key")).unwrap()
}
