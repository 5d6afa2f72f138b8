//! What the node counts: every metric, its name and its meaning, once.
//!
//! Names follow Prometheus' conventions: base units, unit last. Values are read when they are asked for; nothing that
//! a shard waits for is locked for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvorum_auth::role::RoleCounts;
use kvorum_base::histogram::{Histogram, Snapshot};
use kvorum_core::quorum::Failure;
use kvorum_peer::peer_state::PeerState;
use kvorum_replication::coordinator::failure_name;
use kvorum_replication::coordinator::metrics::MissingAnswer;
use kvorum_replication::hints::{Dropped, TargetMetrics};
use kvorum_storage::{HealthState, Stall};
use rustix::param::page_size;
use rustix::time::{ClockId, clock_gettime};

use super::sink::{HistogramUnit, Labels, MetricSink, float, seconds};
use crate::guards::Guards;
use crate::profile::allocations;
use crate::view::{NodeView, StoreSample};

/// What the system counts of this process, under the names that all of Prometheus' clients use.
pub(super) fn process(page: &mut impl MetricSink) -> fmt::Result {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let used = Duration::try_from(time).unwrap_or_default().as_secs_f64();
    page.seconds("process_cpu_seconds", "User and system time spent", used)?;
    // Size and resident size, in pages.
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    let page_bytes = u64::try_from(page_size()).expect("a page fits 64 bits");
    page.gauge("process_resident_memory_bytes", "Resident memory", float(pages * page_bytes))
}

/// What this node counts of itself.
pub(super) fn all(page: &mut impl MetricSink, view: &NodeView) -> fmt::Result {
    node(page, view)?;
    http(page, view)?;
    coordinator(page, view)?;
    peers(page, view)?;
    guards(page, view)?;
    hints(page, view)?;
    commit(page, view)?;
    repair(page, view)?;
    store(page, view)
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn label(name: &'static str, value: impl Into<String>) -> Labels {
    vec![(name, value.into())]
}

fn node(page: &mut impl MetricSink, view: &NodeView) -> fmt::Result {
    let build = vec![("version", env!("CARGO_PKG_VERSION").to_owned()), ("commit", view.build.to_owned())];
    page.gauges("build_info", "The build that runs; always 1", [(build, 1.0)])?;
    let vote_state = f64::from(u8::from(view.membership.abstains().is_none()));
    page.gauge("node_votes", "Whether this node's answers count", vote_state)?;
    let voting = u64::try_from(view.membership.voting_partitions()).unwrap_or(0);
    page.gauge("node_voting_partitions", "Partitions that this node votes for, of 4096", float(voting))?;
    page.gauge("node_ready", "Whether /readyz answers 200", f64::from(u8::from(view.ready().is_ok())))?;
    let fenced = f64::from(u8::from(view.membership.is_fenced()));
    page.gauge("node_fenced", "Whether the clock is too far from most peers'", fenced)?;
    page.gauge(
        "read_pool_depth",
        "Reads that wait for a thread",
        float(u64::try_from(view.pool.depth()).unwrap_or(0)),
    )?;
    match allocations::allocated_bytes() {
        Ok(bytes) => page.counter("allocated_bytes", "Bytes allocated so far, freed since or not", bytes)?,
        Err(error) => tracing::debug!(%error, "the allocator does not count"),
    }
    page.counter("read_pool_refused", "Reads refused because the pool's queue was full", view.pool.refused())
}

fn http(page: &mut impl MetricSink, view: &NodeView) -> fmt::Result {
    let shards = &view.http;
    let mut requests: Vec<(Labels, u64)> = Vec::new();
    for shard in shards {
        for (index, (method, status, count)) in shard.requests().enumerate() {
            match requests.get_mut(index) {
                Some((_, total)) => *total += count,
                None => requests.push((vec![("method", method.to_owned()), ("status", status.to_string())], count)),
            }
        }
    }
    requests.retain(|(_, count)| *count > 0);
    page.counters("http_requests", "Answered requests", requests)?;
    let mut latencies: Vec<(Labels, Snapshot)> = Vec::new();
    for shard in shards {
        for (index, (method, class, histogram)) in shard.latencies().enumerate() {
            match latencies.get_mut(index) {
                Some((_, all)) => all.add(&histogram.snapshot()),
                None => {
                    let labels = vec![("method", method.to_owned()), ("class", class.to_owned())];
                    latencies.push((labels, histogram.snapshot()));
                }
            }
        }
    }
    latencies.retain(|(_, all)| all.count() > 0);
    page.histograms(
        "http_request_duration_seconds",
        "From a request's head to its answer's; by class, which is how many of a key's replicas it waits for",
        HistogramUnit::Micros,
        latencies,
    )?;
    let sum = |counter: fn(&kvorum_http::HttpMetrics) -> &AtomicU64| {
        shards.iter().map(|shard| load(counter(shard))).sum::<u64>()
    };
    page.gauge("http_connections", "Open connections", float(sum(|shard| &shard.connections)))?;
    page.gauge("http_requests_in_flight", "Requests being served", float(sum(|shard| &shard.in_flight)))?;
    page.gauge(
        "large_value_bytes",
        "Bytes of large values in memory",
        float(u64::try_from(view.large_values.used()).unwrap_or(u64::MAX)),
    )?;
    page.counter("http_connections_accepted", "Connections taken", sum(|shard| &shard.connections_total))?;
    page.counters(
        "http_timeouts",
        "Connections closed because of a client that was slow or silent",
        [
            (label("kind", "request"), sum(|shard| &shard.request_timeouts)),
            (label("kind", "idle"), sum(|shard| &shard.idle_timeouts)),
            (label("kind", "write"), sum(|shard| &shard.write_timeouts)),
        ],
    )?;
    page.counter("http_malformed", "Heads that were no HTTP, or too large", sum(|shard| &shard.malformed))?;
    page.counter("http_batch_operations", "Operations of batches", sum(|shard| &shard.batch_operations))?;
    page.counter("http_shed", "Connections and requests turned away for lack of room", sum(|shard| &shard.shed))?;
    page.counter("http_defects", "Requests that ran into a defect", sum(|shard| &shard.defects))?;
    page.counter("http_ranges_broken", "Ranges cut short by a damaged record", sum(|shard| &shard.ranges_broken))
}

fn coordinator(page: &mut impl MetricSink, view: &NodeView) -> fmt::Result {
    let shards = &view.coordinators;
    let sum = |counter: fn(&kvorum_replication::coordinator::metrics::CoordinatorMetrics) -> &AtomicU64| {
        shards.iter().map(|shard| load(counter(shard))).sum::<u64>()
    };
    page.gauge("coordinator_operations", "Requests under way, answered or not", float(sum(|shard| &shard.operations)))?;
    let delays = shards.iter().enumerate();
    page.gauges(
        "coordinator_hedge_delay_seconds",
        "How long a read waits for its first replicas",
        delays.map(|(shard, metrics)| (label("shard", shard.to_string()), seconds(load(&metrics.hedge_delay_us)))),
    )?;
    page.counter("coordinator_hedges", "Reads that asked more replicas than at first", sum(|shard| &shard.hedges))?;
    page.counter("coordinator_hedges_denied", "Hedges over the budget", sum(|shard| &shard.hedges_denied))?;
    page.counter("coordinator_write_backs", "Stores by reads", sum(|shard| &shard.write_backs))?;
    page.counter("coordinator_mends", "Stores that replace a damaged record", sum(|shard| &shard.damage_repairs))?;
    page.counter("coordinator_read_repairs", "Stores to replicas behind a read", sum(|shard| &shard.read_repairs))?;
    let denied = sum(|shard| &shard.read_repairs_denied);
    page.counter(
        "coordinator_read_repairs_denied",
        "Stores to replicas behind a read that were over the budget",
        denied,
    )?;
    page.counter(
        "coordinator_delayed_behind",
        "Writes that waited because of the debt of the replicas' stores",
        sum(|shard| &shard.delayed_behind),
    )?;
    page.counter(
        "coordinator_refused_behind",
        "Writes refused because of the debt of the replicas' stores",
        sum(|shard| &shard.refused_behind),
    )?;
    page.counter(
        "coordinator_restamps",
        "Writes started over with a newer version",
        sum(|shard| &shard.timestamp_retries),
    )?;
    page.counter("coordinator_stale_answers", "Stores refused as stale", sum(|shard| &shard.stale_answers))?;
    page.counter("coordinator_corrupt_answers", "Damaged records found by reads", sum(|shard| &shard.corrupt_answers))?;
    page.counter("coordinator_late_answers", "Answers to dropped requests", sum(|shard| &shard.late_answers))?;
    page.counter(
        "coordinator_unconfirmed_stores",
        "Stores that no answer confirmed",
        sum(|shard| &shard.unconfirmed_stores),
    )?;
    let mut missing: BTreeMap<MissingAnswer, u64> = BTreeMap::new();
    for (answer, count) in shards.iter().flat_map(|shard| shard.missing()) {
        *missing.entry(answer).or_default() += count;
    }
    let missing = missing.into_iter().map(|(MissingAnswer { operation, cause, replica }, count)| {
        let peer = view.membership.peer(replica).url.to_string();
        (vec![("operation", operation.to_owned()), ("cause", cause.to_owned()), ("peer", peer)], count)
    });
    page.counters(
        "coordinator_not_enough_replicas",
        "Answers that requests lacked which too few replicas answered (504): what the peer did instead",
        missing,
    )
}

fn peers(page: &mut impl MetricSink, view: &NodeView) -> fmt::Result {
    let membership = &view.membership;
    let peers: Vec<_> = membership.others().into_iter().map(|node| (node, membership.peer(node))).collect();
    let peers: Vec<_> = peers.into_iter().map(|(node, peer)| (node, label("peer", &*peer.url), peer)).collect();
    let each = |value: fn(&PeerState) -> u64| -> Vec<(Labels, u64)> {
        peers.iter().map(|(_, labels, peer)| (labels.clone(), value(peer))).collect()
    };
    let gauges = |values: Vec<(Labels, u64)>| values.into_iter().map(|(labels, value)| (labels, float(value)));
    let links = each(|peer| u64::from(peer.links.load(Ordering::Relaxed)));
    page.gauges("peer_connections", "Connections to the peer, over all shards", gauges(links))?;
    let latencies = each(|peer| load(&peer.latency_us));
    page.gauges(
        "peer_latency_seconds",
        "Recent round trip to the peer",
        latencies.into_iter().map(|(labels, micros)| (labels, seconds(micros))),
    )?;
    let offsets = peers.iter().map(|(_, labels, peer)| {
        #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
        let offset_ms = peer.clock_offset_ms() as f64;
        (labels.clone(), offset_ms / 1000.0)
    });
    page.gauges("peer_clock_offset_seconds", "How far the peer's clock is ahead", offsets.collect::<Vec<_>>())?;
    let rebuilding = each(|peer| u64::from(peer.rebuilding.load(Ordering::Relaxed)));
    page.gauges("peer_rebuilding", "Whether the peer lost its data and has no vote", gauges(rebuilding))?;
    let heard = peers.iter().map(|(node, labels, _)| {
        let sequence = membership.remembered(*node).map_or(0, |note| note.sequence);
        (labels.clone(), float(sequence))
    });
    page.gauges("peer_sequence", "How far the peer's store is known to be durable", heard.collect::<Vec<_>>())?;
    page.counters("peer_connects", "Connections made to the peer", each(|peer| load(&peer.connects)))?;
    page.counters("peer_refusals", "Handshakes refused by either side", each(|peer| load(&peer.refusals)))?;
    let errors = each(|peer| load(&peer.protocol_errors));
    page.counters("peer_protocol_errors", "Connections closed for what came over them", errors)?;
    page.counter("peer_strangers", "Handshakes of nodes that do not belong here", load(&membership.handshake_errors))
}

fn guards(page: &mut impl MetricSink, view: &NodeView) -> fmt::Result {
    let Guards { auth, audit, is_insecure, .. } = &view.guards;
    let insecure = f64::from(u8::from(*is_insecure));
    page.gauge(
        "insecure",
        "Whether whoever reaches the node from another machine may do everything, or call itself a peer",
        insecure,
    )?;
    let unfinished = u64::try_from(view.peer_room.unfinished()).unwrap_or(u64::MAX);
    page.gauge("peer_unfinished_bytes", "Bytes of messages of peers that are not whole", float(unfinished))?;
    if let Some(auth) = auth {
        page.counter("auth_unauthorized", "Requests without a key that is accepted", load(&auth.unauthorized))?;
        page.counter("auth_blocked", "Such requests of addresses that had too many", load(&auth.blocked))?;
        page.counter("auth_reloads", "Files of keys read anew", load(&auth.reloads))?;
        page.counter("auth_failed_reloads", "Files of keys that were not taken", load(&auth.failed_reloads))?;
        let table = auth.table();
        let by_role = table.roles().iter().flat_map(|role| {
            let RoleCounts { allowed, denied, limited } = &*role.counts;
            [("allowed", allowed), ("denied", denied), ("limited", limited)].map(|(outcome, count)| {
                (vec![("role", role.name.clone()), ("outcome", outcome.to_owned())], load(count))
            })
        });
        page.counters("auth_requests", "Requests with a key, by its role", by_role)?;
    }
    if let Some(audit) = audit {
        page.counter("audit_lines", "Lines of the audit that were written", load(&audit.written))?;
        page.counter("audit_left_out", "Lines of the audit for which there was no room", load(&audit.left_out))?;
        page.counter("audit_failed", "Writes of the audit that failed", load(&audit.failed))?;
    }
    Ok(())
}

fn hints(page: &mut impl MetricSink, view: &NodeView) -> fmt::Result {
    let (hints, membership) = (&view.hints, &view.membership);
    let each = |value: fn(&TargetMetrics) -> &AtomicU64| -> Vec<(Labels, u64)> {
        let of = |node| (label("peer", &*membership.peer(node).url), load(value(&hints.target(node))));
        membership.others().into_iter().map(of).collect()
    };
    let gauges = |values: Vec<(Labels, u64)>| values.into_iter().map(|(labels, value)| (labels, float(value)));
    page.gauges("hints_pending", "Writes kept for the peer", gauges(each(|target| &target.pending)))?;
    page.gauges(
        "hints_pending_bytes",
        "Bytes kept for the peer; a key that is kept again within its minute counts again",
        gauges(each(|target| &target.pending_bytes)),
    )?;
    let now_ms = view.clock.wall_ms();
    let oldest = each(|target| &target.oldest_ms).into_iter().map(|(labels, at_ms)| {
        let age_ms = if at_ms == 0 { 0 } else { now_ms.saturating_sub(at_ms) };
        (labels, float(age_ms) / 1000.0)
    });
    page.gauges("hints_oldest_seconds", "Age of the oldest write kept for the peer, to a minute", oldest)?;
    let rates = gauges(each(|target| &target.rate));
    page.gauges(
        "hints_rate_bytes",
        "Bytes a second that the peer is sent at most, now, each hint counted as 512 bytes more",
        rates,
    )?;
    let waiting = u64::try_from(hints.waiting_bytes()).unwrap_or(u64::MAX);
    page.gauge("hints_queue_bytes", "Hints that wait to be written", float(waiting))?;
    page.counters("hints_kept", "Hints written", each(|target| &target.kept))?;
    page.counters("hints_delivered", "Hints that the peer has taken", each(|target| &target.delivered))?;
    page.counters(
        "hints_superseded",
        "Hints left out because a newer one of their key was delivered",
        each(|target| &target.superseded),
    )?;
    let dropped = Dropped::ALL.map(|why| (label("reason", why.name()), hints.dropped(why)));
    page.counters("hints_dropped", "Hints that were not delivered", dropped)
}

fn commit(page: &mut impl MetricSink, view: &NodeView) -> fmt::Result {
    let metrics = &view.commit;
    let load_now = view.queue.load();
    page.gauge(
        "commit_queue_works",
        "Writes that wait for the commit thread",
        float(u64::try_from(load_now.works).unwrap_or(0)),
    )?;
    page.gauge(
        "commit_queue_bytes",
        "Bytes of the writes that wait for the commit thread",
        float(u64::try_from(load_now.bytes).unwrap_or(0)),
    )?;
    page.counter("commit_batches", "Batches decided", load(&metrics.batches))?;
    page.counter("commit_commits", "Batches written", load(&metrics.commits))?;
    page.counter("commit_records", "Records written", load(&metrics.records))?;
    page.counter("commit_record_bytes", "Bytes of keys and records written", load(&metrics.bytes))?;
    let one = |histogram: &Histogram| [(Vec::new(), histogram.snapshot())];
    page.histograms("commit_batch_works", "Writes per batch", HistogramUnit::Count, one(&metrics.batch_works))?;
    page.histograms(
        "commit_batch_duration_seconds",
        "Lookups, log write and fsync",
        HistogramUnit::Micros,
        one(&metrics.batch_micros),
    )?;
    page.histograms(
        "commit_sync_duration_seconds",
        "Log write, fsync and memtable of a commit",
        HistogramUnit::Micros,
        one(&view.commit_micros),
    )?;
    let answers = [
        (label("answer", "accepted"), load(&metrics.accepted)),
        (label("answer", "stale"), load(&metrics.stale)),
        (label("answer", "stale-unknown"), load(&metrics.stale_unknown)),
    ];
    let failed = Failure::ALL.map(|failure| (label("answer", failure_name(failure)), metrics.failed(failure)));
    page.counters("commit_answers", "Answers to stores", answers.into_iter().chain(failed))?;
    page.counter("commit_point_reads", "Lookups of the exact version", load(&metrics.point_reads))?;
    page.counter("commit_cold_reads", "Lookups of the exact version that needed the disk", load(&metrics.cold_reads))?;
    page.counter("commit_mended", "Damaged records replaced", load(&metrics.mended))?;
    page.counter("commit_bound_raises", "Raises of the clock's durable bound", load(&metrics.bound_raises))?;
    page.gauge("commit_recent_versions", "Accepted versions remembered", float(load(&metrics.recent_entries)))?;
    let unsure = f64::from(u8::from(metrics.unsure.load(Ordering::Relaxed)));
    page.gauge("commit_unsure", "Whether stale answers promise nothing at present", unsure)
}

fn repair(page: &mut impl MetricSink, view: &NodeView) -> fmt::Result {
    let metrics = &view.anti_entropy.metrics;
    let (lowest, highest) = view.store.gc_watermarks().bounds();
    page.gauges(
        "repair_watermark_seconds",
        "Up to where partitions are proven converged, since 1970: the lowest and the highest of all",
        [("lowest", lowest), ("highest", highest)]
            .map(|(name, at)| (label("bound", name), float(at.millis()) / 1000.0)),
    )?;
    let unproven = u64::try_from(view.store.gc_watermarks().unproven()).unwrap_or(u64::MAX);
    page.gauge(
        "repair_unproven_partitions",
        "Partitions, of 4096, that the last proof left out: deletions there are kept",
        float(unproven),
    )?;
    let unscannable = f64::from(u8::from(view.anti_entropy.unscannable().is_some()));
    page.gauge("repair_unscannable", "Whether the store could not be scanned for the last round", unscannable)?;
    page.counter("repair_rounds", "Rounds driven by this node to their end", load(&metrics.rounds))?;
    page.counter(
        "repair_whole_rounds",
        "Rounds driven by this node to their end, with all nodes",
        load(&metrics.whole_rounds),
    )?;
    page.counter("repair_scanned_bytes", "Bytes of records looked at", load(&metrics.scanned_bytes))?;
    page.counter("repair_damaged_records", "Damaged records found by scans", load(&metrics.damaged))?;
    page.counter("repair_copied_records", "Records given to nodes that lacked them", load(&metrics.copied))?;
    page.counter(
        "repair_copied_bytes",
        "Bytes of the records given to nodes that lacked them",
        load(&metrics.copied_bytes),
    )
}

fn store(page: &mut impl MetricSink, view: &NodeView) -> fmt::Result {
    let StoreSample { stats, disk_free_bytes, disk_total_bytes } = view.store_sample();
    let health = view.store.health();
    page.gauges(
        "store_state",
        "What the store can do: 1 for the state that it is in",
        [("healthy", HealthState::Healthy), ("disk-full", HealthState::DiskFull), ("poisoned", HealthState::Poisoned)]
            .map(|(name, state)| (label("state", name), f64::from(u8::from(health == state)))),
    )?;
    page.gauge("store_disk_free_bytes", "Bytes that the store's file system has left", float(disk_free_bytes))?;
    page.gauge("store_disk_total_bytes", "Bytes of the store's file system", float(disk_total_bytes))?;
    page.gauge(
        "store_compaction_pending_bytes",
        "What compaction has yet to rewrite",
        float(stats.compaction_pending_bytes),
    )?;
    let asked = view.membership.own_state().backpressure();
    page.gauge(
        "store_backpressure",
        "How much this node asks coordinators to hold writes back, from 0 to 7: from 1 on they wait, from 4 on a share is \
         refused",
        f64::from(asked.level()),
    )?;
    page.gauge("store_level0_files", "Files not yet merged into the levels", float(stats.level0_files))?;
    page.gauge("store_memtable_bytes", "Bytes in write buffers", float(stats.memtable_bytes))?;
    page.gauge("store_memtables_waiting", "Full write buffers not yet in a file", float(stats.memtables_waiting))?;
    page.counter(
        "store_flushed_bytes",
        "Bytes written by flushes; with those of compactions, over those given to the engine: the write amplification",
        stats.flushed_bytes,
    )?;
    page.counter("store_compacted_bytes", "Bytes written by compactions", stats.compacted_bytes)?;
    page.counter("store_written_bytes", "Bytes given to the engine to write", stats.written_bytes)?;
    page.gauge("store_table_bytes", "Bytes of live table files", float(stats.table_bytes))?;
    page.gauge("store_records", "Records, estimated; tombstones count", float(stats.records))?;
    page.gauge("store_sequence", "Grows with every commit", float(view.store.sequence()))?;
    page.gauge("store_cache_capacity_bytes", "Bytes that the block cache may hold", float(stats.cache_capacity_bytes))?;
    page.gauge("store_cache_used_bytes", "Bytes that the block cache holds", float(stats.cache_used_bytes))?;
    page.gauge(
        "store_record_cache_used_bytes",
        "Bytes of whole records in front of the block cache",
        float(stats.record_cache_used_bytes),
    )?;
    page.counter("store_cache_hits", "Blocks found in the block cache", stats.cache_hits)?;
    page.counter(
        "store_cache_misses",
        "Blocks not found in the cache; a read that needs the disk misses twice",
        stats.cache_misses,
    )?;
    page.counter(
        "store_block_reads",
        "Blocks that came into the cache, from files or with new tables",
        stats.block_reads,
    )?;
    let stalled = f64::from(u8::from(stats.stall != Stall::None));
    page.gauge("store_stalled", "Whether the engine holds writes back now", stalled)?;
    page.counter("store_stalls", "Times that the engine began to hold writes back", stats.stalls)?;
    page.seconds("store_stall_seconds", "For how long commits were held back", seconds(stats.stall_micros))?;
    page.counter("store_background_errors", "Failures of background work", stats.background_errors)?;
    page.counter("store_damaged_compactions", "Damaged files found by compaction", stats.damaged_compactions)?;
    page.counter("store_recoveries", "Recoveries from a full disk", stats.recoveries)?;
    page.counter("store_corrupt_reads", "Reads that found damage", stats.corrupt_reads)?;
    page.counter("store_dropped_records", "Deletions and expired records dropped by compaction", stats.dropped)?;
    let scrub = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    page.counter("scrub_passes", "Passes over everything that is stored, ended", scrub(&view.scrub.ended))?;
    page.counter("scrub_records", "Records verified", scrub(&view.scrub.records))?;
    page.counter("scrub_bytes", "Bytes of the records verified", scrub(&view.scrub.bytes))?;
    page.counter("scrub_damaged", "Records found damaged", scrub(&view.scrub.damaged))?;
    page.counter("scrub_mended", "Damaged records replaced by other replicas", scrub(&view.scrub.repaired))
}
