//! Which requests are slow, which keys are hot, and where keys are: `/v0/slow`, `/v0/hot` and `/v0/layout`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kvorum_core::key::{KeyHash, PARTITIONS};
use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;
use kvorum_core::quorum::Quorum;
use kvorum_core::{Key, PartitionId};
use kvorum_http::api::KeyNames;
use kvorum_replication::coordinator::HotKey;
use kvorum_replication::coordinator::hot::{HotWindow, SAMPLE, WINDOW};
use kvorum_replication::coordinator::slow::{SlowReplica, SlowRequest};
use serde_json::{Value, json};

use crate::view::NodeView;

/// Hot keys that are shown.
const KEYS_MAX: usize = 100;

/// The slowest requests' page: newest first.
pub(crate) fn slow(view: &NodeView) -> Vec<u8> {
    let mut requests: Vec<Arc<SlowRequest>> =
        view.coordinators.iter().flat_map(|shard| shard.slow.requests()).collect();
    requests.sort_by_key(|request| std::cmp::Reverse(request.at_ms));
    let requests: Vec<Value> = requests.iter().map(|request| slow_request(view, request)).collect();
    to_json(&json!({ "threshold_ms": millis(view.slow_threshold), "requests": requests }))
}

fn slow_request(view: &NodeView, request: &SlowRequest) -> Value {
    let membership = &view.membership;
    let own = membership.own();
    let of_own = request.replicas.iter().find(|replica| replica.node == own).and_then(|replica| replica.took);
    let of_peers =
        request.replicas.iter().filter(|replica| replica.node != own).filter_map(|replica| replica.took).max();
    let receipt = |replica: &SlowReplica| {
        json!({
            "node": membership.peer(replica.node).url,
            "outcome": replica.outcome,
            "version": replica.version.map(|version| version.to_string()),
            "ms": replica.took.map(millis),
        })
    };
    json!({
        "at_ms": request.at_ms,
        "ms": millis(request.took),
        "operation": request.operation,
        "hash": hash(request.hash),
        "partition": request.hash.partition().index(),
        "class": class(request.quorum),
        "ack": request.quorum.required(),
        "from": request.quorum.replicas(),
        "status": request.status,
        "queue_ms": millis(request.queued),
        "commit_ms": of_own.map(|took| millis(took.saturating_sub(request.queued))),
        "peers_ms": of_peers.map(|took| millis(took.saturating_sub(request.queued))),
        "receipt": request.replicas.iter().map(receipt).collect::<Vec<_>>(),
    })
}

fn class(quorum: Quorum) -> &'static str {
    match quorum {
        quorum if quorum.required() == quorum.replicas() => "all",
        quorum if quorum.is_quorum() => "quorum",
        _ => "below",
    }
}

/// The page of hot keys: of the last window that has ended on any shard, if that was not long ago.
pub(crate) fn hot(view: &NodeView, names: KeyNames) -> Vec<u8> {
    let now = view.clock.boot();
    let windows: Vec<Arc<HotWindow>> = view.coordinators.iter().filter_map(|shard| shard.hot.get()).collect();
    // Published within a second of its end, and replaced by the next.
    let window = HotWindow::merged(&windows).filter(|window| now.saturating_sub(window.end) < WINDOW * 2);
    let age_ms = window.as_ref().map_or(0, |window| whole_millis(now.saturating_sub(window.end)));
    let (keys, partitions) =
        window.map_or_else(|| (Vec::new(), vec![0; PARTITIONS].into()), |window| (window.keys, window.partitions));
    let keys: Vec<Value> = keys.iter().take(KEYS_MAX).map(|hot| hot_key(hot, names)).collect();
    let partitions: Vec<u8> = partitions.iter().flat_map(|count| count.to_le_bytes()).collect();
    to_json(&json!({
        "window_s": WINDOW.as_secs(),
        "at_ms": view.clock.wall_ms().saturating_sub(age_ms),
        "sample": SAMPLE,
        "keys": keys,
        "partitions": BASE64.encode(partitions),
    }))
}

fn hot_key(hot: &HotKey, names: KeyNames) -> Value {
    let bytes = (names == KeyNames::Shown).then(|| hot.key.as_bytes());
    let text = bytes.and_then(|bytes| str::from_utf8(bytes).ok());
    json!({
        "key": text,
        "key_base64": bytes.filter(|_| text.is_none()).map(|bytes| BASE64.encode(bytes)),
        "hash": hash(hot.hash),
        "partition": hot.hash.partition().index(),
        "count": u64::from(hot.count) * u64::from(SAMPLE),
        "error": u64::from(hot.error) * u64::from(SAMPLE),
    })
}

/// Where one key is: all nodes in their order of preference, the first of which hold it.
pub(crate) fn where_is(key: &Key, layout: &Layout) -> Vec<u8> {
    let partition = key.hash().partition();
    let url = |node: &NodeId| layout.node(*node).map(|node| node.url.as_str());
    to_json(&json!({
        "hash": hash(key.hash()),
        "partition": partition.index(),
        "from": layout.copies(),
        "replicas": layout.preference_list(partition).iter().filter_map(url).collect::<Vec<_>>(),
    }))
}

/// Where all keys are: for each partition a byte for each node, its place in the list of nodes.
pub(crate) fn layout(layout: &Layout) -> Vec<u8> {
    let places: BTreeMap<NodeId, u8> = layout.ids().zip(0..).collect();
    let place = |node: &NodeId| *places.get(node).expect("the lists are of its nodes");
    let lists = PartitionId::all().flat_map(|partition| layout.preference_list(partition).iter().map(place));
    let nodes: Vec<Value> = layout
        .nodes()
        .iter()
        .map(|node| json!({ "url": node.url, "zone": node.zone, "weight": node.weight }))
        .collect();
    to_json(&json!({
        "layout_version": layout.epoch(),
        "partitions": PARTITIONS,
        "from": layout.copies(),
        "nodes": nodes,
        "preference": BASE64.encode(lists.collect::<Vec<u8>>()),
    }))
}

fn hash(hash: KeyHash) -> String {
    format!("{:016x}", hash.get())
}

/// To a microsecond.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn to_json(page: &Value) -> Vec<u8> {
    serde_json::to_vec(page).expect("plain values are JSON")
}
