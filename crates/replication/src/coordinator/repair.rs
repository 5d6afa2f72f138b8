//! What a read brings up to date behind its answer: a copy that it has found damaged; below a quorum also a replica
//! that was seen to be behind, within a budget. At a quorum the read has seen to a majority itself, before the answer.
//!
//! Nothing waits for any of this, and its answers are not read: what is lost, the next read finds again.
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_core::{Key, Record};

use super::operation::{Operation, StateMachine, replicas};
use super::operations::Operations;
use crate::replica::StoreReason;

impl Operations {
    /// After the answer: sends what was read to the replicas that are known by now to need it, each once.
    pub(super) fn repair(&self, operation: &mut Operation, now: Duration) {
        let replicas = replicas(&operation.layout, operation.partition, operation.quorum);
        let is_quorum = operation.quorum.is_quorum();
        let StateMachine::Read { machine, repaired, .. } = &mut operation.machine else { return };
        let Some(record) = machine.answered_record() else { return };
        let damaged = machine.to_repair();
        let behind = if is_quorum { damaged } else { machine.outdated().or(damaged) };
        for rank in behind.minus(*repaired).iter() {
            let Some(node) = replicas.get(usize::from(rank.0)) else { continue };
            repaired.insert(rank);
            if damaged.contains(rank) {
                self.metrics.damage_repairs.fetch_add(1, Ordering::Relaxed);
            } else if self.repair.0.borrow_mut().try_take(now, record.bytes().len()) {
                self.metrics.read_repairs.fetch_add(1, Ordering::Relaxed);
            } else {
                self.metrics.read_repairs_denied.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            // If it cannot be sent, the next read finds the same again.
            let (id, epoch) = (self.id_of_nobody(), operation.layout.epoch());
            let _ = self.send_store(id, epoch, *node, &operation.key, record, StoreReason::Repair);
        }
    }

    /// Replaces what this node holds damaged by what a quorum answered. The read alone does not always: where the
    /// others answer first, the read does not wait for the damaged one.
    pub(crate) fn repair_own(&self, key: &Key, record: &Record) {
        // What cannot be queued is still damaged when the caller looks, or in the next pass.
        let (id, epoch) = (self.id_of_nobody(), self.membership.epoch());
        let _ = self.send_store(id, epoch, self.membership.own(), key, record, StoreReason::Repair);
    }
}
