//! Whatever queues has a bound, and keeps it.

use std::sync::atomic::Ordering;

use crate::machine::{MachinePlan, Process};

/// Looks at one process at one moment, in which at most `clients` requests of clients are under way.
///
/// # Errors
/// What has outgrown its bound.
pub fn check(plan: &MachinePlan, process: &Process, clients: usize) -> Result<(), String> {
    let load = process.queue.load();
    // An empty queue takes one work of any size.
    let bytes = if load.works > 1 { load.bytes } else { 0 };
    let recent = usize::try_from(process.commit.recent_entries.load(Ordering::Relaxed)).expect("it fits");
    // What has come from the queue: at most a batch beyond the entries.
    let recent_max = plan.recent_entries_max + plan.queue.works_max;
    let waiting_max = 2 * plan.queue.works_max + plan.jobs_max + crate::machine::READERS;
    let figures = [
        ("works that wait for the commit", load.works, plan.queue.works_max),
        ("their bytes", bytes, plan.queue.bytes_max),
        ("jobs of the read pool", process.shard.pool.depth(), plan.jobs_max),
        ("jobs of the scan pool", process.shard.scans.depth(), plan.jobs_max),
        ("versions remembered", recent, recent_max),
        ("requests under way", process.shard.coordinator.under_way(), clients + plan.lingering_max),
        ("questions that wait", process.shard.replica.waiting(), waiting_max),
        ("bytes of large values", process.shard.large_values.used(), plan.large_bytes_max),
    ];
    let excess = figures.iter().find(|(_, figure, bound)| figure > bound);
    excess.map_or(Ok(()), |(what, figure, bound)| Err(format!("bounded: {what}: {figure}, over {bound}")))
}
