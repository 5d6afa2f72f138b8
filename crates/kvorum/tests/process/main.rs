//! Real nodes, real ports, real RocksDB: the contract of `docs/` held from outside.
//!
//! Where a new test goes: `api_*` one node and what a client sees; `attack` all faults under load; `batch` batches; `backup` backups and
//! restored nodes; `cli` the client's commands, `cli_json` what they print for programs, `cli_watch` what they show of a
//! cluster that runs; `cluster_*` several healthy or missing nodes; `console` the console,
//! `console_lab` that of `dev`; `crash_*` death, damage
//! and full disks; `malformed` what is no request and no frame, in numbers; `peer_*` bad peers, crowds and large
//! values; `profile` profiles and the admin listener; `ready` that a ready node answers; `start` refusals to start;
//! `drain` SIGTERM; `expiry` values that
//! end; `memory` the budget; `hints` what a node that is away misses; `recipes` the commands of
//! docs/how-to; `scan` scans over the cluster, `scan_bad_days` rebuilds, disks and clocks, `scan_command` the command; `repair_*` anti-entropy, dropped deletions
//! and rebuilt nodes; `scrub` damage that no request reads; `scenario` the published measurements; `security_*`
//! strangers, keys, browsers; `upgrade` older data; `work_*` queries and scripts. `support` is
//! what they share. A test is named by its rule. Nothing waits a fixed time: `support::wait` asks until a deadline.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    missing_docs,
    unreachable_pub
)]

mod api_connection;
mod api_entity;
mod api_headers;
mod api_limits;
mod api_node;
mod api_observe;
mod api_range;
mod attack;
mod backup;
mod batch;
mod bench;
mod cli;
mod cli_json;
mod cli_watch;
mod cluster_degraded;
mod cluster_examples;
mod cluster_replication;
mod cluster_sharding;
mod console;
mod console_lab;
mod crash_damage;
mod crash_disk_full;
mod crash_kill;
mod crash_poisoned;
mod drain;
mod expiry;
mod hints;
mod layouts;
mod malformed;
mod memory;
mod peer_crowd;
mod peer_large;
mod peer_stranger;
mod profile;
mod ready;
mod recipes;
mod repair_rounds;
mod scan;
mod scan_bad_days;
mod scan_command;
mod scenario;
mod scrub;
mod security_browser;
mod security_keys;
mod security_peers;
mod start;
mod support;
mod upgrade;
mod work_query;
mod work_script;
