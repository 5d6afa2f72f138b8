//! `/v0/cluster`: the cluster as this node sees it; `/v0/repair`: rounds of anti-entropy.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use kvorum_core::layout::MemberState;
use kvorum_core::node::NodeId;
use kvorum_core::{PartitionId, key::PARTITIONS};
use kvorum_engine_rocksdb::backup::Label;
use kvorum_peer::membership::VoteState;
use kvorum_replication::scrub::Scrub;
use serde_json::{Value, json};

use crate::view::NodeView;

/// What an operator does about a node that lost its data.
const REBUILDING: &str = "repair gives it back what the others have, and then its vote; keep them up, and see \
                          docs/how-to/node-is-rebuilding.md";

/// What an operator does about a node whose store cannot be scanned.
const UNSCANNABLE: &str = "rounds of anti-entropy do without this node, and prove nothing; it serves on, but rebuild \
                           it: see docs/how-to/node-cannot-be-scanned.md";

/// The page, as JSON.
pub(crate) fn cluster(view: &NodeView) -> Vec<u8> {
    let membership = &view.membership;
    let layout = membership.layout();
    let mut primaries: BTreeMap<NodeId, u32> = BTreeMap::new();
    for partition in PartitionId::all() {
        let primary = layout.preference_list(partition).first().expect("every partition has a primary");
        *primaries.entry(*primary).or_default() += 1;
    }
    let own = membership.own();
    let nodes: Vec<Value> = layout
        .nodes()
        .iter()
        .map(|member| {
            let mut entry = if member.id == own { this_node(view) } else { peer(view, member.id) };
            let fixed = json!({
                "id": member.id.0,
                "url": member.url,
                "membership": match member.state {
                    MemberState::Member => "member",
                    MemberState::Joining => "joining",
                    MemberState::Leaving => "leaving",
                    MemberState::Lost => "lost",
                },
                "zone": member.zone,
                "weight": member.weight,
                "partitions_primary": primaries.get(&member.id).copied().unwrap_or_default(),
                "partitions": PARTITIONS,
            });
            if let (Some(entry), Value::Object(fixed)) = (entry.as_object_mut(), fixed) {
                entry.extend(fixed);
            }
            entry
        })
        .collect();
    let ready = view.ready();
    let page = json!({
        "cluster": format!("{:016x}", layout.cluster()),
        "configuration": format!("{:016x}", layout.founding_digest()),
        "epoch": layout.epoch(),
        "layout_version": layout.epoch(),
        "copies": layout.copies(),
        "plan": Value::Null,
        "node": membership.own_state().url,
        "version": env!("CARGO_PKG_VERSION"),
        "insecure": view.guards.is_insecure,
        "auth_digest": view.guards.auth.as_ref().map(|auth| auth.table().digest().to_string()),
        "ready": ready.is_ok(),
        "reason": ready.err(),
        "watermark": watermark(view),
        "nodes": nodes,
    });
    serde_json::to_vec_pretty(&page).expect("plain values are JSON")
}

/// A backup, as JSON.
pub(crate) fn backup(path: &std::path::Path, label: &Label) -> Vec<u8> {
    let Label { cluster, node, wall_ms, sequence } = label;
    let page = json!({
        "path": path,
        "cluster": cluster.to_string(),
        "node": node,
        "wall_ms": wall_ms,
        "sequence": sequence,
    });
    serde_json::to_vec_pretty(&page).expect("plain values are JSON")
}

/// `/v0/repair`: rounds of anti-entropy that this node drives, and the results that it has received.
pub(crate) fn repair(view: &NodeView) -> Vec<u8> {
    let mut page = view.anti_entropy.show();
    if let Some(page) = page.as_object_mut() {
        page.insert("watermark".to_owned(), watermark(view));
        // Why no round may begin.
        page.insert("reason".to_owned(), view.ready().err().into());
    }
    serde_json::to_vec_pretty(&page).expect("plain values are JSON")
}

/// Up to where this node's partitions are proven converged, in milliseconds since 1970; zero where nothing is.
fn watermark(view: &NodeView) -> Value {
    let (lowest, highest) = view.store.gc_watermarks().bounds();
    json!({ "lowest_ms": lowest.millis(), "highest_ms": highest.millis() })
}

fn this_node(view: &NodeView) -> Value {
    let rebuilding = match view.membership.vote_state() {
        VoteState::Rebuilding => {
            let reason = view.membership.rebuilding_reason().unwrap_or_default();
            let count = view.membership.voting_partitions();
            let round = round(&view.anti_entropy.show_driving());
            Some(format!("{reason}; it votes for {count} of {PARTITIONS} partitions; {round}; {REBUILDING}"))
        }
        VoteState::Unconfirmed | VoteState::Voting => None,
    };
    json!({
        "state": "self",
        "directory": view.membership.directory().to_string(),
        "latency_ms": null,
        "hints": null,
        "hint_bytes": null,
        "reason": view.ready().err(),
        "rebuilding": rebuilding,
        "unscannable": view.anti_entropy.unscannable().map(|why| format!("{why}; {UNSCANNABLE}")),
        "scrub": scrub(&view.scrub),
    })
}

/// How far the round is that gives a node back what it lost.
fn round(driving: &Value) -> String {
    let Some(phase) = driving["phase"].as_str() else { return "between two rounds of anti-entropy".to_owned() };
    let (step, steps, listed, copied) = (&driving["step"], &driving["steps"], &driving["listed"], &driving["copied"]);
    format!(
        "its round of anti-entropy is at step {step} of {steps}, {phase}: {listed} keys compared, {copied} records copied"
    )
}

fn scrub(scrub: &Scrub) -> Value {
    json!({
        "begun": scrub.begun.load(Ordering::Acquire),
        "ended": scrub.ended.load(Ordering::Acquire),
        "records": scrub.records.load(Ordering::Relaxed),
        "bytes": scrub.bytes.load(Ordering::Relaxed),
        "damaged": scrub.damaged.load(Ordering::Relaxed),
        "mended": scrub.repaired.load(Ordering::Relaxed),
        "trouble": scrub.trouble(),
    })
}

/// Asks for a pass, and returns its number, as JSON.
pub(crate) fn scrub_asked(view: &NodeView) -> Vec<u8> {
    serde_json::to_vec_pretty(&json!({ "pass": view.scrub.ask() })).expect("plain values are JSON")
}

/// What ends because it was asked to, if there is something, as JSON.
pub(crate) fn stopping(what: Option<impl Into<Value>>) -> Vec<u8> {
    let page = json!({ "stopping": what.map_or(Value::Null, Into::into) });
    serde_json::to_vec_pretty(&page).expect("plain values are JSON")
}

fn peer(view: &NodeView, node: NodeId) -> Value {
    let membership = &view.membership;
    let peer = membership.peer(node);
    let is_up = peer.links.load(Ordering::Relaxed) > 0;
    let is_rebuilding = peer.rebuilding.load(Ordering::Relaxed);
    let trouble = peer.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let state = match (&trouble, is_up, is_rebuilding) {
        (_, true, true) => "rebuilding",
        (_, true, false) => "up",
        (Some(trouble), false, _) if trouble.starts_with("refused") => "refused",
        (_, false, _) => "down",
    };
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a round trip")]
    let latency_ms = peer.latency_us.load(Ordering::Relaxed) as f64 / 1000.0;
    json!({
        "state": state,
        "directory": membership.remembered(node).map(|note| note.directory.to_string()),
        "latency_ms": is_up.then_some(latency_ms),
        "hints": view.hints.target(node).pending.load(Ordering::Relaxed),
        "hint_bytes": view.hints.target(node).pending_bytes.load(Ordering::Relaxed),
        "reason": trouble.filter(|_| !is_up),
        "rebuilding": is_rebuilding.then(|| format!("it lost what it had acknowledged; {REBUILDING}")),
    })
}
