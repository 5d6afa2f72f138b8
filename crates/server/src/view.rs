//! What the node shows of itself.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::clock::Clock;
use kvorum_base::cpu_share::CpuShare;
use kvorum_base::faults::Faults;
use kvorum_base::histogram::Histogram;
use kvorum_base::value_memory::LargeValues;
use kvorum_engine_rocksdb::{RocksStore, backup};
use kvorum_http::{ClientShares, HttpMetrics};
use kvorum_peer::first_dials::FirstDials;
use kvorum_peer::membership::{Membership, VoteState};
use kvorum_peer::room::PeerRoom;
use kvorum_replication::anti_entropy::AntiEntropy;
use kvorum_replication::cluster_scan::ScanBudget;
use kvorum_replication::coordinator::metrics::CoordinatorMetrics;
use kvorum_replication::hints::HintQueue;
use kvorum_replication::scrub::Scrub;
use kvorum_storage::backup_label::Label;
use kvorum_storage::commit::{CommitMetrics, CommitQueue};
use kvorum_storage::{HealthState, Store, StoreStats};

use crate::guards::Guards;
use crate::work::NodeWork;

/// The least from one backup to the next, in milliseconds: each has the store write out what is only in memory.
const BACKUP_INTERVAL_MS: u64 = 60_000;

/// Figures of the store and of its file system.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreSample {
    /// The store's own.
    pub(crate) stats: StoreStats,
    /// Bytes that are left for this process.
    pub(crate) disk_free_bytes: u64,
    /// Bytes of all.
    pub(crate) disk_total_bytes: u64,
}

/// What the node shows of itself: to `/readyz`, `/metrics` and `/v0/cluster`.
pub(crate) struct NodeView {
    /// The hybrid logical clock.
    pub(crate) clock: Arc<Clock>,
    /// Identity, standing and peers.
    pub(crate) membership: Arc<Membership>,
    /// Of the shards that have clients, to all peers.
    pub(crate) first_dials: FirstDials,
    /// Those that were ordered, of a node that takes such orders.
    pub(crate) faults: Option<Arc<Faults>>,
    /// What decides who may do what.
    pub(crate) guards: Guards,
    /// How much peers may take.
    pub(crate) peer_room: Arc<PeerRoom>,
    /// The store.
    pub(crate) store: Arc<dyn Store>,
    /// Writes on their way to the store.
    pub(crate) queue: CommitQueue,
    /// What the commit thread counts.
    pub(crate) commit: Arc<CommitMetrics>,
    /// Log write and fsync of each batch, in microseconds.
    pub(crate) commit_micros: Arc<Histogram>,
    /// The engine behind `store`, for backups.
    pub(crate) engine: Arc<RocksStore>,
    /// Held while a backup is taken: when the last one was, in milliseconds of the wall clock.
    pub(crate) backing_up: Mutex<Option<u64>>,
    /// What was verified.
    pub(crate) scrub: Arc<Scrub>,
    /// Blocking reads.
    pub(crate) pool: ReadPool,
    /// Scans of all that is stored.
    pub(crate) scans: ReadPool,
    /// What background work takes of a core.
    pub(crate) cpu_share: CpuShare,
    /// Hints on their way, and what is counted of all of them.
    pub(crate) hints: Arc<HintQueue>,
    /// What scans over the cluster take.
    pub(crate) scan_budget: Arc<ScanBudget>,
    /// What they want done beside the data.
    pub(crate) work: Arc<NodeWork>,
    /// Memory for large values.
    pub(crate) large_values: Arc<LargeValues>,
    /// What clients hold of it.
    pub(crate) client_shares: Arc<ClientShares>,
    /// Rounds of anti-entropy.
    pub(crate) anti_entropy: Arc<AntiEntropy>,
    /// Figures of the store, as of the last look.
    pub(crate) sampled: Mutex<StoreSample>,
    /// From how long on a request is kept as slow.
    pub(crate) slow_threshold: Duration,
    /// What the program was built of.
    pub(crate) build: &'static str,
    /// When the process began.
    pub(crate) started: Instant,
    /// What each shard's coordinator counts.
    pub(crate) coordinators: Vec<Arc<CoordinatorMetrics>>,
    /// What each shard's HTTP side counts.
    pub(crate) http: Vec<Arc<HttpMetrics>>,
}

impl NodeView {
    /// Whether a request through this node would succeed, if enough of its peers are there.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) fn ready(&self) -> Result<(), String> {
        self.started()?;
        if self.membership.is_fenced() {
            return Err("the clock is too far from most peers': set it right".to_owned());
        }
        if self.clock.is_stuck_ahead() {
            return Err("the wall clock was set back by more than clock.skew_max: set it right, or wait".to_owned());
        }
        if self.store.health() == HealthState::DiskFull {
            return Err("the disk is full: reads go on, writes resume with space".to_owned());
        }
        if self.clock.is_waiting_for_disk() {
            return Err("the disk does not answer: reads go on, writes when it does; check the disk".to_owned());
        }
        if !self.membership.is_serving() {
            return Err(match self.membership.awaited() {
                Some(awaited) => {
                    format!("the data directory is new, and a majority of its peers must have registered it: {awaited}")
                }
                None => "the cluster is being founded: a majority of its nodes must be up".to_owned(),
            });
        }
        if !self.first_dials.are_over() {
            return Err("the node connects to its peers for the first time: wait, a second or so".to_owned());
        }
        Ok(())
    }

    /// Whether the node has started and does not stop. Its peers may not have: requests wait for them for a while.
    ///
    /// # Errors
    /// Why a request to it cannot succeed.
    pub(crate) fn started(&self) -> Result<(), String> {
        if self.membership.is_draining() {
            return Err("the node is stopping".to_owned());
        }
        if self.store.health() == HealthState::Poisoned {
            return Err("a log write or fsync failed: reads only until a restart; check the disk".to_owned());
        }
        Ok(())
    }

    /// Looks at the store and its file system. Takes a lock of the engine and asks the disk: not for a shard.
    pub(crate) fn sample_store(&self) {
        let stats = self.store.stats();
        let disk = rustix::fs::statvfs(self.membership.data_path());
        let mut sample = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        sample.stats = stats;
        // What it said before stands where the disk does not say: none is left is another thing.
        if let Ok(disk) = disk {
            sample.disk_free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
            sample.disk_total_bytes = disk.f_blocks.saturating_mul(disk.f_frsize);
        }
    }

    /// What the last look has found.
    pub(crate) fn store_sample(&self) -> StoreSample {
        *self.sampled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a backup, one at a time. Blocks: not for a shard. Where it is, and of what.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn take_backup(&self) -> Result<(PathBuf, Label), String> {
        let Ok(mut last) = self.backing_up.try_lock() else { return Err("a backup is being taken already".to_owned()) };
        let now = self.clock.wall_ms();
        if last.is_some_and(|last| now.abs_diff(last) < BACKUP_INTERVAL_MS) {
            return Err("a backup was taken less than a minute ago: try again in a minute".to_owned());
        }
        if self.membership.vote_state() == VoteState::Rebuilding {
            return Err("the node is rebuilding: back up one that has everything".to_owned());
        }
        let label = Label {
            cluster: self.membership.list(),
            node: self.membership.own_state().url.to_string(),
            wall_ms: now,
            sequence: self.store.sequence(),
        };
        let taken = backup::take(self.membership.data_path(), &self.engine, &label);
        let path = taken.map_err(|error| error.to_string()).inspect_err(|error| tracing::error!(error, "no backup"))?;
        tracing::info!(path = %path.display(), sequence = label.sequence, "backup taken");
        *last = Some(now);
        Ok((path, label))
    }

    /// Removes a backup that was not fetched in time: its tables take up space once the store has rewritten them.
    /// Blocks: not for a shard.
    pub(crate) fn forget_old_backup(&self) {
        let Ok(_only) = self.backing_up.try_lock() else { return };
        let now = UNIX_EPOCH + Duration::from_millis(self.clock.wall_ms());
        match backup::forget_older(self.membership.data_path(), now) {
            Ok(false) => {}
            Ok(true) => tracing::warn!("a backup was removed that nobody had fetched for an hour"),
            Err(error) => tracing::warn!(%error, "an old backup stays"),
        }
    }
}
