//! The layout is decided by the nodes, and kept by each: how a cluster is founded, and how a node that was away, or has
//! lost its directory, comes to the layout that the others have.

use serde_json::Value;

use crate::support::{Cluster, entity, wait_until};

/// Short, so that a node that was rebuilt has its vote back soon.
const QUICK: [(&str, &str); 2] = [("KVORUM_COORDINATOR_DEADLINE", "1s"), ("KVORUM_CLOCK_SKEW_MAX", "1s")];

fn status(cluster: &Cluster, index: usize) -> Value {
    cluster.client(index).get("/v0/cluster").json()
}

/// None while the node does not answer.
fn epoch(cluster: &Cluster, index: usize) -> Option<u64> {
    let page = cluster.client(index).send("GET", "/v0/cluster", &[], None).ok()?;
    page.json()["epoch"].as_u64()
}

/// What all nodes that run show of the layout.
fn agreed(cluster: &Cluster, nodes: &[usize]) -> (String, u64) {
    let shown = nodes.iter().map(|&index| {
        let page = status(cluster, index);
        (page["cluster"].as_str().unwrap().to_owned(), page["epoch"].as_u64().unwrap())
    });
    let shown: Vec<_> = shown.collect();
    assert!(shown.iter().all(|one| *one == shown[0]), "{shown:?}");
    shown[0].clone()
}

#[test]
fn the_nodes_of_a_list_found_one_cluster_and_keep_it() {
    let mut cluster = Cluster::start(3);
    let founded = agreed(&cluster, &[0, 1, 2]);
    assert!(founded.1 >= 1 && founded.0 != "0000000000000000", "{founded:?}");
    cluster.client(0).put(&entity("key"), b"value");
    cluster.kill_all();
    // What the list says of weights counts no longer, and one node is enough to know the layout.
    let weights = format!("{}=3", cluster.node(1).url());
    cluster.set_variable(1, "KVORUM_LAYOUT_WEIGHTS", &weights);
    cluster.spawn(1);
    wait_until("the node shows the layout", || epoch(&cluster, 1) == Some(founded.1));
    assert_eq!(agreed(&cluster, &[1]), founded);
    assert!(cluster.log(1).contains("is not what the cluster was founded with"), "{}", cluster.log(1));
    cluster.spawn(0);
    cluster.spawn(2);
    cluster.wait_whole();
    assert_eq!(agreed(&cluster, &[0, 1, 2]), founded);
    assert_eq!(cluster.client(2).get(&entity("key")).text(), "value");
}

#[test]
fn clusters_founded_apart_with_one_list_do_not_mix() {
    let mut cluster = Cluster::start(3);
    let first = agreed(&cluster, &[0, 1, 2]);
    cluster.kill_all();
    let old = cluster.node(2).data_dir.clone();
    for index in 0..3 {
        let name = format!("second-{index}");
        cluster.set_data_dir(index, cluster.root().join(name));
    }
    cluster.spawn_all();
    cluster.wait_whole();
    let second = agreed(&cluster, &[0, 1, 2]);
    assert_ne!(first.0, second.0);
    cluster.kill(2);
    cluster.set_data_dir(2, old);
    cluster.spawn(2);
    wait_until("it is refused", || cluster.log(0).contains("belongs to another cluster"));
    assert_eq!(agreed(&cluster, &[0, 1]), second);
    assert_eq!(agreed(&cluster, &[2]), first);
}

#[test]
fn a_node_that_has_lost_its_directory_gets_the_layout_back_and_is_named_by_the_next() {
    let mut cluster = Cluster::with(3, &QUICK);
    let founded = agreed(&cluster, &[0, 1, 2]);
    cluster.client(0).put(&entity("key"), b"value");
    let before = cluster.directory(2);
    cluster.kill(2);
    std::fs::remove_dir_all(&cluster.node(2).data_dir).unwrap();
    cluster.spawn(2);
    wait_until("it has its vote back", || cluster.votes(2));
    wait_until("it is named by the next layout", || agreed_epoch(&cluster) > Some(founded.1));
    let (id, epoch) = agreed(&cluster, &[0, 1, 2]);
    assert_eq!(id, founded.0);
    assert_ne!(cluster.directory(2), before);
    // It decides with one of the others, as before.
    cluster.kill(1);
    std::fs::remove_dir_all(&cluster.node(1).data_dir).unwrap();
    cluster.spawn(1);
    wait_until("the next is named as well", || agreed_epoch(&cluster) > Some(epoch));
    assert_eq!(cluster.client(1).get(&entity("key")).text(), "value");
}

/// The epoch of all nodes, if it is one.
fn agreed_epoch(cluster: &Cluster) -> Option<u64> {
    let mut epochs = (0..cluster.len()).map(|index| epoch(cluster, index));
    let first = epochs.next()??;
    epochs.all(|epoch| epoch == Some(first)).then_some(first)
}

#[test]
fn a_damaged_layout_keeps_its_node_from_starting_and_says_so() {
    let mut cluster = Cluster::start(1);
    cluster.kill(0);
    let path = cluster.node(0).data_dir.join("LAYOUT");
    crate::support::cluster::rewrite(&path, |bytes| bytes[7] ^= 1);
    cluster.spawn(0);
    let status = cluster.wait_exit(0, std::time::Duration::from_secs(10));
    assert!(!status.success());
    assert!(cluster.log(0).contains("LAYOUT is damaged"), "{}", cluster.log(0));
}
