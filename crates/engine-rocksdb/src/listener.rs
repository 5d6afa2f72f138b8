//! What the engine's threads report.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvorum_base::priority;
use kvorum_storage::{Health, Stall, StoreError};
use rocksdb::event_listener::{
    BackgroundErrorRecoveryInfo, CompactionJobInfo, DBBackgroundErrorReason, DBFlushReason, DBWriteStallCondition,
    EventListener, FlushJobInfo, MemTableInfo, MutableStatus, StatusSeverity, WriteStallInfo,
};

use super::engine_share::EngineShare;
use super::flushes::Flushes;
use super::log_zeros::LogZeros;
use crate::error::classify;

/// Where the engine's threads report to. Atomics, and a line of log where one changes: a callback must not
/// block.
pub(super) struct EngineListener {
    pub(super) health: Arc<Health>,
    pub(super) share: Arc<EngineShare>,
    pub(super) flushes: Arc<Flushes>,
    pub(super) zeros: Arc<LogZeros>,
}

impl EventListener for EngineListener {
    fn on_memtable_sealed(&self, _: &MemTableInfo) {
        self.share.note_memtable_sealed();
        self.flushes.note_change();
        self.zeros.begin_log();
    }

    fn on_flush_begin(&self, info: &FlushJobInfo) {
        priority::lower_to(priority::WORK);
        // Not where the engine waits for space on the disk.
        use DBFlushReason::{KManualFlush, KWalFull, KWriteBufferFull, KWriteBufferManager};
        if matches!(info.flush_reason(), KManualFlush | KWalFull | KWriteBufferFull | KWriteBufferManager) {
            self.share.begin_flush();
        } else {
            // There is no call for one that has failed.
            EngineShare::end();
        }
    }

    fn on_flush_completed(&self, info: &FlushJobInfo) {
        // Those of these two reasons are of all families.
        use DBFlushReason::{KErrorRecovery, KManualFlush};
        if !matches!(info.flush_reason(), KErrorRecovery | KManualFlush) {
            self.flushes.note_uneven();
        }
        EngineShare::end();
    }

    fn on_compaction_begin(&self, _: &CompactionJobInfo) {
        priority::lower_to(priority::WORK);
        self.share.begin_compaction();
    }

    fn on_compaction_completed(&self, _: &CompactionJobInfo) {
        EngineShare::end();
    }

    fn on_background_error(&self, reason: DBBackgroundErrorReason, status: MutableStatus) {
        self.health.background_errors.fetch_add(1, Ordering::Relaxed);
        let Err(error) = status.result() else { return };
        match classify(error) {
            // A damaged block found by compaction: reads of it fail, a newer record or a write-back repairs it, and
            // that needs a store that takes writes. The compaction is tried again.
            StoreError::Corrupt(_) if reason == DBBackgroundErrorReason::KCompaction => {
                self.health.note_damaged_compaction(error.as_ref());
                status.reset();
            }
            StoreError::DiskFull if status.severity() == StatusSeverity::KHardError => {
                self.health.set_disk_full(error.as_ref());
            }
            _ if status.severity() >= StatusSeverity::KFatalError => self.health.set_poisoned(error.as_ref()),
            _ => {}
        }
    }

    fn on_error_recovery_end(&self, info: &BackgroundErrorRecoveryInfo) {
        if info.new_bg_error().result().is_ok() {
            self.health.set_space();
            self.health.recoveries.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_stall_conditions_changed(&self, info: &WriteStallInfo) {
        self.health.set_stall(match info.cur() {
            DBWriteStallCondition::KDelayed => Stall::Delayed,
            DBWriteStallCondition::KStopped => Stall::Stopped,
            DBWriteStallCondition::KNormal => Stall::None,
        });
    }
}
