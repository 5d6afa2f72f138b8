//! Any node answers for any key, and each key has exactly the copies that were asked for.

use std::collections::BTreeMap;

use crate::support::{Cluster, entity, entity_at, wait_until};

/// Which nodes hold which key.
fn holders(cluster: &Cluster) -> BTreeMap<String, Vec<usize>> {
    let mut holders: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for index in 0..cluster.len() {
        for (key, _) in cluster.local(index, "k") {
            holders.entry(key).or_default().push(index);
        }
    }
    holders
}

#[test]
fn one_copy_at_from_1_and_any_node_answers() {
    let cluster = Cluster::start(3);
    let mut clients = cluster.clients();
    let key = |number: usize| format!("k{number:03}");
    for number in 0..300 {
        clients[number % 3].put(&entity_at(key(number), 1, 1), format!("value {number}").as_bytes());
    }
    for number in 0..300 {
        for client in &mut clients {
            assert_eq!(client.value(&entity_at(key(number), 1, 1)), format!("value {number}").as_bytes());
        }
    }
    let holders = holders(&cluster);
    assert_eq!(holders.len(), 300);
    assert!(holders.values().all(|nodes| nodes.len() == 1), "{holders:?}");
    for index in 0..3 {
        let share = holders.values().filter(|nodes| nodes[0] == index).count();
        assert!((60..=140).contains(&share), "node {index} holds {share} of 300 keys");
    }
    for number in 0..300 {
        clients[(number + 1) % 3].delete(&entity_at(key(number), 1, 1));
        clients[(number + 2) % 3].absent(&entity_at(key(number), 1, 1));
    }
}

#[test]
fn the_configured_from_is_the_default() {
    let cluster = Cluster::with(3, &[("KVORUM_REPLICATION_FROM", "1")]);
    let mut clients = cluster.clients();
    for number in 0..60 {
        clients[number % 3].put(&entity(format!("k{number}")), b"v");
    }
    for number in 0..60 {
        for client in &mut clients {
            assert_eq!(client.value(&entity(format!("k{number}"))), b"v");
        }
    }
    let holders = holders(&cluster);
    assert!(holders.len() == 60 && holders.values().all(|nodes| nodes.len() == 1), "{holders:?}");
}

#[test]
fn exactly_from_copies_are_kept_and_each_set_is_part_of_the_larger_one() {
    let cluster = Cluster::start(4);
    let mut clients = cluster.clients();
    for number in 0..40 {
        for from in 1..=4 {
            clients[(number + from) % 4].put(&entity_at(format!("k{number}"), from, from), b"v");
            // All `from` have answered, and no other was asked.
            let holding: Vec<usize> = (0..4).filter(|&index| holds(&cluster, index, number)).collect();
            assert_eq!(holding.len(), from, "key {number}");
        }
        for client in &mut clients {
            assert_eq!(client.value(&entity_at(format!("k{number}"), 4, 4)), b"v");
        }
    }
}

fn holds(cluster: &Cluster, index: usize, number: usize) -> bool {
    let query = format!("/v0/entities?start=k{number}&end=k{number}%00");
    !cluster.client(index).get(&query).chunks.unwrap().is_empty()
}

#[test]
fn what_fewer_acks_wait_for_reaches_all_from_and_nobody_else() {
    let cluster = Cluster::start(3);
    let mut clients = cluster.clients();
    for number in 0..100 {
        clients[number % 3].put(&entity_at(format!("k{number:02}"), 1, 2), b"v");
    }
    wait_until("both replicas have every key", || {
        let holders = holders(&cluster);
        assert!(holders.values().all(|nodes| nodes.len() <= 2), "one copy too many: {holders:?}");
        holders.len() == 100 && holders.values().all(|nodes| nodes.len() == 2)
    });
}

#[test]
fn reading_makes_no_extra_copies() {
    let cluster = Cluster::start(3);
    let mut clients = cluster.clients();
    for number in 0..30 {
        clients[0].put(&entity_at(format!("k{number:02}"), 1, 1), b"v");
    }
    for number in 0..30 {
        for client in &mut clients {
            assert_eq!(client.value(&entity_at(format!("k{number:02}"), 3, 3)), b"v");
            // Two of three may both be others than its one replica: a value or nothing, and no copy either way.
            let response = client.get(&entity_at(format!("k{number:02}"), 2, 3));
            assert!(matches!(response.status, 200 | 404), "{response:?}");
        }
    }
    let holders = holders(&cluster);
    assert!(holders.len() == 30 && holders.values().all(|nodes| nodes.len() == 1), "{holders:?}");
}
