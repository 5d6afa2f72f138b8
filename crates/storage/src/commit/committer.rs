//! The logic of the commit thread: single-threaded, time as an argument.
//!
//! Promises, per answer: `Accepted` is durable as configured, and remembered for `retention`; `Stale` is
//! about something durable, and final. A batch whose commit fails is answered `Failed` as a whole, and
//! nothing of it is remembered (its versions may have raised marks, which costs lookups).
//!
//! Invariants: the persisted clock bound is never below the timestamp of anything applied, nor below the fence, because
//! it is raised in the same atomic batch; so after a restart marks at the bound are true.
//!
//! The rules themselves are [`kvorum_core::quorum::replica`]'s; source: `docs/explanation/consistency.md`, "The
//! protocol".

use std::sync::Arc;
use std::time::Duration;

use kvorum_base::sync::atomic::{AtomicU64, Ordering};
use kvorum_core::mutant::{Mutant, is_on};
use kvorum_core::quorum::replica::{Decision, KnownVersion, Origin, Recent, decide};
use kvorum_core::quorum::{Current, Failure, Held, StoreAnswer};
use kvorum_core::record::Record;
use kvorum_core::version::{Hlc, Version};

use super::metrics::{CommitMetrics, add};
use super::overlay::Overlay;
use super::promises::Promises;
use super::recent::{Fingerprint, RecentSet};
use super::stripe_high_water::StripeHighWater;
use super::work::{Completion, CompletionToken, Prefetch, Submission, Work};
use crate::error::StoreError;
use crate::store::{Batch, Durability, Store, Tier, find};

/// The name under which the clock bound is persisted.
const BOUND: &str = "clock_bound";
/// Reads ahead in the pool before the commit thread reads from the disk itself.
const READS_AHEAD_MAX: u8 = 2;

/// How far ahead of its use the clock's bound is made durable.
pub const BOUND_LEAD: Duration = Duration::from_millis(1000);
/// Versions are remembered for so much longer than their coordinator waits, by which clocks of two
/// machines may drift meanwhile.
pub const RETENTION_MARGIN: Duration = Duration::from_millis(500);

/// Limits and durations of the commit logic.
#[derive(Clone, Copy, Debug)]
pub struct CommitConfig {
    /// From a write's timestamp to its coordinator's last use of an answer.
    pub retention: Duration,
    /// Entries of the recent set.
    pub recent_entries_max: usize,
    /// How far ahead of the wall clock a version may claim to be.
    pub skew_max: Duration,
    /// How far ahead of its use the clock bound is persisted.
    pub bound_lead: Duration,
    /// Bytes of keys and records at which a batch is closed.
    pub batch_bytes_max: usize,
    /// When a commit counts.
    pub durability: Durability,
}

/// Decides and commits. One per store.
pub struct Committer<S> {
    store: Arc<S>,
    config: CommitConfig,
    metrics: Arc<CommitMetrics>,
    high_water: StripeHighWater,
    recent: RecentSet,
    /// The durable clock bound.
    bound: Hlc,
    /// The same for the shards, which timestamp up to it.
    shared_bound: Arc<AtomicU64>,
    /// The batch in the making; empty between runs.
    batch: Batch,
    overlay: Overlay,
    /// The greatest timestamp above the bound in this batch, applied or asked for: the bound goes past it, by
    /// the lead. After the commit's attempt, the bound that it was to make durable.
    bound_wanted: Hlc,
    /// What the batch added to the recent set, to be taken back if it fails.
    remembered: Vec<Fingerprint>,
    raises: Vec<(CompletionToken, Hlc)>,
    promises: Promises,
    /// Set aside by the batch, until [`Committer::take_cold`].
    cold: Vec<NeedsDisk>,
}

/// A record whose lookup needs the disk: to be read elsewhere and handed in as [`Work::Retry`].
#[derive(Debug)]
pub struct NeedsDisk {
    /// The record.
    pub submission: Submission,
    /// Reads of it so far.
    pub reads: u8,
}

/// Why there is no exact current version.
enum Miss {
    Cold,
    Damaged { claimed: Option<Version> },
    Failed(Failure),
}

impl<S: Store> Committer<S> {
    /// Reads the persisted clock bound. `boot` is the time since boot, now.
    ///
    /// # Errors
    /// Those of reading the store.
    pub fn new(store: Arc<S>, config: CommitConfig, boot: Duration) -> Result<Self, StoreError> {
        let bound = match store.metadata(BOUND)? {
            None => Hlc::ZERO,
            Some(bytes) => Hlc::from_raw(u64::from_be_bytes(
                bytes.try_into().map_err(|_| StoreError::Corrupt("the clock bound is not 8 bytes long".to_owned()))?,
            )),
        };
        let promises = Promises::load(&*store)?;
        let mut high_water = StripeHighWater::at(bound);
        high_water.raise_all(store.gc_watermarks().bounds().1);
        Ok(Self {
            store,
            config,
            metrics: Arc::default(),
            high_water,
            recent: RecentSet::new(boot, config.retention, config.recent_entries_max),
            bound,
            shared_bound: Arc::new(AtomicU64::new(bound.raw())),
            batch: Batch::default(),
            overlay: Overlay::default(),
            bound_wanted: Hlc::ZERO,
            remembered: Vec::new(),
            raises: Vec::new(),
            promises,
            cold: Vec::new(),
        })
    }

    /// The durable clock bound, as a raw [`Hlc`]: raised only after the commit that persists it.
    #[must_use]
    pub fn bound(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared_bound)
    }

    /// The bar, raised only once it is durable: what was asked by an older layout is not answered any more.
    #[must_use]
    pub fn bar(&self) -> Arc<AtomicU64> {
        self.promises.durable_bar()
    }

    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> Arc<CommitMetrics> {
        Arc::clone(&self.metrics)
    }

    /// The store that it writes to.
    #[must_use]
    pub fn store(&self) -> &Arc<S> {
        &self.store
    }

    /// What the last run set aside because its lookup needs the disk.
    pub fn take_cold(&mut self) -> Vec<NeedsDisk> {
        std::mem::take(&mut self.cold)
    }

    /// Takes one batch from the front of `works` (all of them, unless they are more than `batch_bytes_max`),
    /// commits what is to be applied, and appends an answer for each, except those set aside as cold. Blocks
    /// on the commit. `boot` runs during suspend, `wall_ms` is since 1970.
    pub fn run(&mut self, works: &mut Vec<Work>, boot: Duration, wall_ms: u64, done: &mut Vec<Completion>) {
        self.recent.advance(boot);
        let first = done.len();
        let count = self.batch_length(works);
        self.high_water.prefetch(works.iter().take(count).filter_map(Work::hash));
        for work in works.drain(..count) {
            let (submission, reads) = match work {
                Work::Store(submission) => (submission, Prefetch::Ahead(0)),
                Work::Retry { submission, reads } => (submission, reads),
                Work::RaiseBound { to, token } => {
                    self.raise_wanted(to, token, done);
                    continue;
                }
                Work::MakeDurable { promise, token } => {
                    self.promises.add(promise, token);
                    continue;
                }
            };
            let token = submission.token;
            if let Some(answer) = self.store_one(submission, reads, boot, wall_ms) {
                done.push(Completion::Stored { token, answer });
            }
        }
        let result = self.commit(wall_ms);
        self.finish(result, done, first);
        add(&self.metrics.batches, 1);
        self.metrics.batch_works.record(u64::try_from(count).expect("usize is at most 64 bits"));
        self.metrics.unsure.store(self.recent.is_unsure(boot), Ordering::Relaxed);
        let entries = u64::try_from(self.recent.len()).expect("usize is at most 64 bits");
        self.metrics.recent_entries.store(entries, Ordering::Relaxed);
    }

    /// How many works make a batch: at least one.
    fn batch_length(&self, works: &[Work]) -> usize {
        let mut bytes = 0;
        let fits = works.iter().take_while(|work| {
            bytes += work.bytes();
            bytes <= self.config.batch_bytes_max
        });
        fits.count().max(1).min(works.len())
    }

    fn raise_wanted(&mut self, to: Hlc, token: CompletionToken, done: &mut Vec<Completion>) {
        if to <= self.bound {
            done.push(Completion::Raised { token, bound: Ok(self.bound) });
        } else {
            self.bound_wanted = self.bound_wanted.max(to);
            self.raises.push((token, to));
        }
    }

    /// The answer if all goes well, or nothing if it was set aside.
    fn store_one(
        &mut self,
        submission: Submission,
        reads: Prefetch,
        boot: Duration,
        wall_ms: u64,
    ) -> Option<StoreAnswer> {
        // Whatever it is: what a node lists after its bar is all that older layouts have left there.
        if submission.epoch < self.promises.bar() {
            return Some(StoreAnswer::Failed(Failure::Epoch));
        }
        let version = submission.version;
        let skew_max_ms = u64::try_from(self.config.skew_max.as_millis()).unwrap_or(u64::MAX);
        if version.hlc.millis() > wall_ms.saturating_add(skew_max_ms) {
            return Some(StoreAnswer::Failed(Failure::ClockSkew));
        }
        let origin = if submission.repair { Origin::Repair } else { Origin::Client };
        let fence = self.promises.fence();
        let mark = KnownVersion::AtMost(self.high_water.get(submission.hash));
        let mut decision = decide(version, origin, mark, fence, || Recent::Unsure);
        if decision == Decision::LookUp {
            decision = match self.look_up(&submission, reads) {
                Ok(current) => {
                    let entry = Fingerprint::new(submission.hash, version);
                    let recent = || self.recent.contains(entry, boot);
                    decide(version, origin, KnownVersion::Exactly(current), fence, recent)
                }
                Err(Miss::Cold) => {
                    let Prefetch::Ahead(reads) = reads else {
                        return Some(StoreAnswer::Failed(Failure::Overloaded));
                    };
                    self.cold.push(NeedsDisk { submission, reads });
                    return None;
                }
                Err(Miss::Damaged { claimed }) => self.repair(version, origin, claimed),
                Err(Miss::Failed(failure)) => Decision::Answer(StoreAnswer::Failed(failure)),
            };
        }
        match decision {
            Decision::Apply => {
                self.apply(submission);
                Some(StoreAnswer::Accepted)
            }
            Decision::Answer(answer) => {
                if answer == StoreAnswer::Accepted {
                    self.remember(Fingerprint::new(submission.hash, version));
                }
                Some(answer)
            }
            Decision::LookUp => unreachable!("an exact version needs no lookup"),
        }
    }

    /// Exactly what the key has, this batch included.
    fn look_up(&mut self, submission: &Submission, reads: Prefetch) -> Result<Current, Miss> {
        if let Some(version) = self.overlay.get(&submission.key, submission.hash) {
            return Ok(Current::Record(version));
        }
        add(&self.metrics.point_reads, 1);
        let tier = if reads == Prefetch::Ahead(READS_AHEAD_MAX) { Tier::Disk } else { Tier::Cache };
        match find(&*self.store, &submission.key, tier) {
            Ok(Held::Absent { gc_watermark }) => Ok(Current::GcWatermark(gc_watermark)),
            Ok(Held::Record(bytes)) => match Record::decode(&submission.key, bytes.clone()) {
                Ok(record) => Ok(Current::Record(record.version())),
                Err(_) => Err(Miss::Damaged { claimed: Record::claimed_version(&bytes) }),
            },
            Err(StoreError::NeedsDisk) => Err(Miss::Cold),
            Err(StoreError::Corrupt(_)) => {
                let salvaged = self.store.salvage(&submission.key);
                Err(Miss::Damaged { claimed: salvaged.and_then(|bytes| Record::claimed_version(&bytes)) })
            }
            Err(StoreError::DiskFull | StoreError::Poisoned(_) | StoreError::Busy | StoreError::Io(_)) => {
                Err(Miss::Failed(Failure::Disk))
            }
        }
    }

    /// What is here is damaged. Repair may replace it by what is not older than it claims to be: what some
    /// replica holds already. A client's write could be older than what the damaged bytes once were.
    fn repair(&self, version: Version, origin: Origin, claimed: Option<Version>) -> Decision {
        if origin == Origin::Repair && claimed.is_some_and(|claimed| version >= claimed) {
            add(&self.metrics.mended, 1);
            Decision::Apply
        } else {
            Decision::Answer(StoreAnswer::Failed(Failure::Corrupt))
        }
    }

    fn apply(&mut self, submission: Submission) {
        let Submission { key, hash, version, record, .. } = submission;
        if !is_on(Mutant::HighWaterLow) {
            self.high_water.raise(hash, version);
        }
        self.overlay.insert(&key, hash, version);
        self.remember(Fingerprint::new(hash, version));
        if version.hlc > self.bound {
            self.bound_wanted = self.bound_wanted.max(version.hlc);
        }
        self.batch.put(key, record);
    }

    fn remember(&mut self, entry: Fingerprint) {
        if self.recent.insert(entry) {
            self.remembered.push(entry);
        }
    }

    /// `bound_lead` after a timestamp.
    fn ahead_of(&self, timestamp: Hlc) -> Hlc {
        let lead_ms = u64::try_from(self.config.bound_lead.as_millis()).unwrap_or(u64::MAX);
        Hlc::from_raw(timestamp.raw().saturating_add(Hlc::from_millis(lead_ms).raw()))
    }

    /// Commits the batch, if there is something to commit.
    fn commit(&mut self, wall_ms: u64) -> Result<(), Failure> {
        let wall = Hlc::from_millis(wall_ms);
        let lead_end = self.ahead_of(wall);
        let half_ms = wall_ms.saturating_add((lead_end.millis().saturating_sub(wall_ms)) / 2);
        // The clocks of all replicas are past a GC watermark, for good: it is never above their fences.
        self.bound_wanted = self.bound_wanted.max(self.promises.fence_wanted());
        let wanted = self.bound_wanted > self.bound;
        // A raise costs nothing in a commit that happens anyway, and spares one of its own.
        if wanted || (!self.batch.is_empty() && self.bound < Hlc::from_millis(half_ms)) {
            // The lead counts from the timestamps where they are ahead of the wall clock: they go on from there,
            // and each would cost a raise of its own.
            self.bound_wanted = self.ahead_of(self.bound_wanted.max(wall)).max(self.bound);
            if !is_on(Mutant::BoundLate) {
                self.batch.put_metadata(BOUND, self.bound_wanted.raw().to_be_bytes().to_vec());
            }
        }
        self.promises.put_into(&mut self.batch, self.store.gc_watermarks());
        if self.batch.is_empty() {
            return Ok(());
        }
        // What others rely on when they drop a deletion must not be lost by a machine that dies.
        let must_be_synced = self.promises.must_be_synced();
        let durability = if must_be_synced { Durability::Fsync } else { self.config.durability };
        let durability = if is_on(Mutant::AckBeforeSync) { Durability::Os } else { durability };
        self.store.commit(&self.batch, durability).map_err(|error| match error {
            StoreError::DiskFull => Failure::DiskFull,
            StoreError::NeedsDisk
            | StoreError::Poisoned(_)
            | StoreError::Corrupt(_)
            | StoreError::Busy
            | StoreError::Io(_) => Failure::Disk,
        })
    }

    /// Makes the answers those of what happened, and everything ready for the next batch.
    fn finish(&mut self, result: Result<(), Failure>, done: &mut Vec<Completion>, first: usize) {
        let answers = done.iter_mut().skip(first);
        match result {
            Ok(()) => {
                if self.bound_wanted > self.bound {
                    self.bound = self.bound_wanted;
                    self.shared_bound.store(self.bound.raw(), Ordering::Release);
                    add(&self.metrics.bound_raises, 1);
                }
                add(&self.metrics.commits, usize::from(!self.batch.is_empty()));
                add(&self.metrics.records, self.batch.records().len());
                add(&self.metrics.bytes, self.batch.bytes());
            }
            Err(failure) => {
                for entry in self.remembered.drain(..) {
                    self.recent.remove(entry);
                }
                for done in answers {
                    if let Completion::Stored { answer, .. } = done
                        && !matches!(answer, StoreAnswer::Failed(_))
                        && !is_on(Mutant::AckFailedCommit)
                    {
                        *answer = StoreAnswer::Failed(failure);
                    }
                }
            }
        }
        for (token, to) in self.raises.drain(..) {
            assert!(result.is_err() || to <= self.bound, "a raised bound covers what was asked");
            done.push(Completion::Raised { token, bound: result.map(|()| self.bound) });
        }
        if let Some(gc_watermark) = self.promises.finish(result, self.store.gc_watermarks(), done) {
            self.high_water.raise_all(gc_watermark);
        }
        for answered in done.iter().skip(first) {
            if let Completion::Stored { answer, .. } = answered {
                self.metrics.count(*answer);
            }
        }
        self.bound_wanted = Hlc::ZERO;
        self.remembered.clear();
        self.overlay.clear();
        self.batch.clear();
    }
}
