//! What a node shows of itself.

use crate::support::{Cluster, entity, wait_until};

#[test]
fn a_serving_node_is_alive_ready_and_says_so_to_old_clients_too() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    for target in ["/v0/status", "/livez", "/readyz"] {
        assert_eq!(client.get(target).status, 200, "{target}");
        assert_eq!(client.ok("HEAD", target, None).status, 200, "{target}");
    }
    assert!(client.is_open());
}

#[test]
fn metrics_are_prometheus_text_that_counts_requests() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let requests = || cluster.metric(0, "kvorum_http_requests_total");
    client.put(&entity("k"), b"v");
    let before = requests();
    for _ in 0..100 {
        client.value(&entity("k"));
    }
    wait_until("100 requests are counted", || requests() >= before + 100.0);
    let response = client.get("/metrics");
    assert!(response.header("content-type").is_some_and(|kind| kind.contains("text")), "{response:?}");
    let text = response.text();
    assert!(text.lines().any(|line| line.starts_with("# TYPE kvorum_")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("# HELP kvorum_")), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let value = line.rsplit(' ').next().unwrap();
        assert!(value.parse::<f64>().is_ok(), "not a sample: {line}");
    }
    for topic in
        ["commit", "fsync", "peer", "hedge", "stale", "restamp", "cache", "compaction", "stall", "queue", "bucket"]
    {
        assert!(text.contains(topic), "nothing about {topic} in:\n{text}");
    }
}

#[test]
fn the_cluster_is_described_by_each_of_its_nodes() {
    let mut cluster = Cluster::start(3);
    for index in 0..3 {
        let response = cluster.client(index).get("/v0/cluster");
        assert_eq!(response.header("content-type"), Some("application/json"));
        let body = response.json();
        assert!(body.is_object(), "{body}");
        for other in 0..3 {
            assert!(response.text().contains(&cluster.node(other).url()), "node {other} is missing: {body}");
        }
    }
    let whole = cluster.client(0).get("/v0/cluster").text();
    cluster.kill(2);
    wait_until("node 0 sees that node 2 is gone", || cluster.client(0).get("/v0/cluster").text() != whole);
}
