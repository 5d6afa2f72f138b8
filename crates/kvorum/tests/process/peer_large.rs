//! Many large values at once between two nodes: all arrive, and no connection is lost over them.

use std::thread;
use std::time::Duration;

use crate::support::{Cluster, entity_at};

const MIB: usize = 1024 * 1024;

#[test]
fn many_large_values_at_once_are_all_stored_and_answered() {
    let settings = [
        ("KVORUM_DURABILITY", "os"),
        ("KVORUM_MEMORY_BYTES", "1GiB"),
        ("KVORUM_LIMITS_VALUE_BYTES_MAX", "1MiB"),
        ("KVORUM_COORDINATOR_REQUEST_BYTES_MAX", "64MiB"),
        ("KVORUM_COORDINATOR_DEADLINE", "20s"),
    ];
    let cluster = Cluster::with(2, &settings);
    (0..2).for_each(|index| cluster.wait_connected(index, 1));
    let value = |number: usize| vec![number as u8; MIB];
    let all = |work: &(dyn Fn(usize) + Sync)| {
        thread::scope(|scope| (0..40).for_each(|number| drop(scope.spawn(move || work(number)))));
    };
    // Half of the keys belong to the node that is not asked. A value is as long as a connection's unfinished
    // messages may be on average; together they are several times longer.
    let client = |index| cluster.client(index).timeout(Duration::from_secs(30));
    all(&|number| drop(client(number % 2).put(&entity_at(format!("k{number}"), 1, 1), &value(number))));
    for round in 0..3 {
        all(&|number| {
            let found = client((number + round) % 2).value(&entity_at(format!("k{number}"), 1, 1));
            assert!(found == value(number), "round {round}, key {number}");
        });
    }
    for index in 0..2 {
        assert_eq!(cluster.metric(index, "kvorum_peer_protocol_errors_total"), 0.0);
        assert_eq!(cluster.metric(index, "kvorum_peer_connects_total"), 3.0, "one for each shard, and no other");
    }
}
