//! What each pair of ack/from promises: a read whose replicas overlap the write's always sees it.

use crate::support::{Cluster, entity, entity_at};

/// Writes, overwrites and deletes with `written` acks and reads with `read`, over all coordinators.
fn always_seen(cluster: &Cluster, from: usize, written: usize, read: usize) {
    let n = cluster.len();
    let mut clients = cluster.clients();
    for round in 0..n * n {
        let (writer, reader) = (round / n, round % n);
        let key = format!("{written}/{from} then {read}/{from}, round {round}");
        let (write, see) = (entity_at(&key, written, from), entity_at(&key, read, from));
        // One coordinator for the writes: below a quorum, those of two may be taken as concurrent.
        for value in [b"first".as_slice(), b"second"] {
            clients[writer].put(&write, value);
            assert_eq!(clients[reader].value(&see), value, "{key}");
        }
        clients[writer].delete(&write);
        clients[reader].absent(&see);
        clients[writer].put(&write, b"back");
        assert_eq!(clients[reader].value(&see), b"back", "{key}");
    }
}

/// The nine examples: for each write, every read that must see it.
#[test]
fn a_read_that_overlaps_a_write_sees_it_whoever_coordinates() {
    let cluster = Cluster::start(3);
    for (from, written, read) in
        [(1, 1, 1), (2, 2, 1), (2, 1, 2), (2, 2, 2), (3, 3, 1), (3, 2, 2), (3, 1, 3), (3, 3, 2), (3, 2, 3)]
    {
        always_seen(&cluster, from, written, read);
    }
}

#[test]
fn the_default_is_a_majority_of_all() {
    for (nodes, quorum) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
        let mut cluster = Cluster::start(nodes);
        let (mut first, mut last) = (cluster.client(0), cluster.client(nodes - 1));
        first.put(&entity("k"), b"v");
        assert_eq!(last.value(&entity("k")), b"v");
        let trace = first.with("GET", &entity("k"), &[("Kvorum-Trace", "1")], None);
        assert_eq!(trace.header("kvorum-replicas").unwrap().matches('=').count(), nodes, "{trace:?}");
        // The quorum is enough, and one less is not.
        for away in quorum..nodes {
            cluster.kill(away);
        }
        first.put(&entity("k"), b"w");
        assert_eq!(first.value(&entity("k")), b"w");
        if quorum > 1 {
            cluster.kill(quorum - 1);
            let problem = first.ok("PUT", &entity("k"), Some(b"x")).problem(504);
            assert_eq!(problem["required"], quorum, "{problem}");
            first.get(&entity("k")).problem(504);
        }
    }
}

#[test]
fn a_quorum_read_never_goes_back_however_few_acks_the_write_had() {
    let mut cluster = Cluster::start(3);
    cluster.client(0).put(&entity_at("k", 3, 3), b"old");
    cluster.kill(1);
    cluster.kill(2);
    cluster.client(0).put(&entity_at("k", 1, 3), b"new");
    cluster.restart(1);
    cluster.restart(2);
    cluster.wait_whole();
    // Whichever value the first quorum read gives, all later ones through any node give that or newer.
    let mut last = cluster.client(2).value(&entity_at("k", 2, 3));
    for index in (0..3).cycle().take(9) {
        let value = cluster.client(index).value(&entity_at("k", 2, 3));
        assert!(value == last || value == b"new", "{value:?} after {last:?}");
        last = value;
    }
    assert_eq!(cluster.client(1).value(&entity_at("k", 3, 3)), b"new", "all three cannot miss it");
    cluster.kill(0);
    cluster.wait_answers(1, 2);
    assert_eq!(cluster.client(1).value(&entity_at("k", 2, 3)), b"new", "what was read is at a majority");
}
