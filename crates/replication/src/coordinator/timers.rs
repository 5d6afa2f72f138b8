//! What passing time does to requests: hedges to the millisecond, deadlines by sweeping.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::operation::{Operation, StateMachine};
use super::operations::{Operations, find};
use crate::operation_id::OperationId;

/// How often deadlines are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_millis(50);

impl Operations {
    /// Has a read, unless it is decided already, looked at once the delay has passed.
    pub(super) fn arm_hedge(&self, id: OperationId, now: Duration) {
        let mut table = self.table.borrow_mut();
        let Some(operation) = find(&mut table, id).filter(|operation| !operation.is_decided) else { return };
        let at = now + self.hedging.delay();
        operation.hedge_at = at;
        let mut hedges = self.hedges.borrow_mut();
        if hedges.is_empty() {
            self.timers.notify_one();
        }
        hedges.push_back((at, id));
    }

    /// Asks more replicas for the reads whose delay has passed, and ends what is past its deadline.
    fn on_timer(self: &Rc<Self>, now: Duration, sweep: bool) {
        loop {
            let due = self.hedges.borrow().front().copied().filter(|(at, _)| *at <= now);
            let Some((_, id)) = due else { break };
            self.hedges.borrow_mut().pop_front();
            self.hedge(id, now);
        }
        if sweep {
            self.sweep(now);
        }
        self.handle_inbox(now);
    }

    /// Asks the replicas it has not asked yet. For as long as a read is undecided, the one it waits for then may be the
    /// slow one: the next sweep after another delay comes here again.
    fn hedge(self: &Rc<Self>, id: OperationId, now: Duration) {
        let mut commands = self.commands.take();
        {
            let mut table = self.table.borrow_mut();
            let Some(operation) = find(&mut table, id).filter(|operation| !operation.is_decided) else {
                drop(table);
                self.commands.replace(commands);
                return;
            };
            let delay = self.hedging.delay();
            operation.hedge_at = now + delay;
            let mut is_forced = false;
            for rank in operation.reading.iter() {
                let Some(node) = operation.node(rank) else { continue };
                if node == self.membership.own() {
                    is_forced |= self.own_disk.is_overdue(now, delay);
                    continue;
                }
                let Some(peer) = self.peers.get(node) else { continue };
                is_forced |= peer.is_suspect(now, delay);
                // The replica that made this necessary took at least so long.
                peer.note_read(operation.waited_for(rank, now));
            }
            if operation.is_hopeless {
                self.decide_not_enough(operation);
            } else if is_forced || self.hedging.can_spend() {
                if let StateMachine::Read { machine, .. } = &mut operation.machine {
                    machine.on_hedge(&mut |command| commands.push(command));
                }
                if !commands.is_empty() {
                    self.metrics.hedges.fetch_add(1, Ordering::Relaxed);
                    if !is_forced {
                        self.hedging.spend();
                    }
                }
            } else {
                self.metrics.hedges_denied.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.carry_out(id, now, &mut commands);
        self.commands.replace(commands);
    }

    /// The shard stops: drops all requests, so that hints of their pending stores are kept.
    pub(super) fn end(&self) {
        let all = |(slot, operation): (usize, &Operation)| OperationId::new(slot, operation.generation, 0);
        let all: Vec<OperationId> = self.table.borrow().iter().map(all).collect();
        all.into_iter().for_each(|id| self.remove(id));
    }

    fn sweep(self: &Rc<Self>, now: Duration) {
        let (mut over, mut slow) = (Vec::new(), Vec::new());
        for (slot, operation) in &mut *self.table.borrow_mut() {
            if operation.deadline > now {
                if !operation.is_decided && operation.hedge_at <= now {
                    slow.push(OperationId::new(slot, operation.generation, operation.round));
                }
                continue;
            }
            if !operation.is_decided {
                self.decide_not_enough(operation);
            }
            if operation.is_released {
                over.push(OperationId::new(slot, operation.generation, 0));
            }
        }
        slow.into_iter().for_each(|id| self.hedge(id, now));
        over.into_iter().for_each(|id| self.remove(id));
        let table = &mut *self.table.borrow_mut();
        let mut lingering = self.lingering.borrow_mut();
        while lingering.front().is_some_and(|id| find(table, *id).is_none()) {
            lingering.pop_front();
        }
    }
}

/// The shard's timers. Runs until it is dropped.
pub(super) async fn run(operations: Rc<Operations>) {
    let mut swept = operations.clock.boot();
    loop {
        let next_hedge = operations.hedges.borrow().front().map(|(at, _)| *at);
        let now = operations.clock.boot();
        let until_sweep = (swept + SWEEP_INTERVAL).saturating_sub(now);
        let wait = match next_hedge {
            Some(at) => Some(at.saturating_sub(now).min(until_sweep)),
            None if operations.under_way() > 0 => Some(until_sweep),
            None => None,
        };
        match wait {
            None => operations.timers.notified().await,
            Some(wait) => tokio::select! {
                biased;
                () = tokio::time::sleep(wait) => {}
                () = operations.timers.notified() => {}
            },
        }
        let now = operations.clock.boot();
        let is_sweep = now.saturating_sub(swept) >= SWEEP_INTERVAL;
        if is_sweep {
            swept = now;
        }
        operations.on_timer(now, is_sweep);
        operations.metrics.note_state(operations.under_way(), operations.hedging.delay());
    }
}
