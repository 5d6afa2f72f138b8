//! Two nodes, as the original protocol's own suite tests them: overlapping quorums, missed writes, restarts.

use crate::support::{Client, Cluster, entity, entity_at};

/// Both ways to ask for `ack` of `from`.
fn spellings(key: &str, ack: usize, from: usize) -> [String; 2] {
    [entity_at(key, ack, from), format!("{}&replicas={ack}/{from}", entity(key))]
}

fn everything(client: &mut Client, target: &str, status: u16) {
    for (method, body) in [("GET", None), ("PUT", Some(b"v".as_slice())), ("DELETE", None)] {
        let response = client.ok(method, target, body);
        response.problem(status);
        assert!(client.is_open(), "{method} {target} closed the connection");
    }
}

#[test]
fn too_few_and_too_many_replicas_are_bad_requests() {
    let cluster = Cluster::start(2);
    for client in &mut cluster.clients() {
        for (ack, from) in [(0, 2), (3, 2), (1, 3), (3, 3), (0, 0), (2, 1)] {
            for target in spellings("k", ack, from) {
                everything(client, &target, 400);
            }
        }
    }
}

#[test]
fn more_replicas_than_are_reachable_is_504() {
    let mut cluster = Cluster::start(2);
    cluster.client(0).put(&entity_at("k", 2, 2), b"v");
    cluster.kill(1);
    let mut client = cluster.client(0);
    for target in spellings("k", 2, 2).into_iter().chain([entity("k")]) {
        for (method, body) in [("GET", None), ("PUT", Some(b"v".as_slice())), ("DELETE", None)] {
            let response = client.ok(method, &target, body);
            assert_eq!(response.reason, "Not Enough Replicas");
            let problem = response.problem(504);
            assert_eq!(problem["title"], "Not Enough Replicas");
            assert_eq!((problem["required"].as_u64(), problem["acked"].as_u64()), (Some(2), Some(1)), "{problem}");
            assert!(problem["replicas"].to_string().contains(&cluster.node(1).address.to_string()), "{problem}");
            assert!(client.is_open());
        }
        assert_eq!(client.ok("HEAD", &target, None).status, 504);
    }
    everything(&mut client, &entity_at("k", 3, 2), 400);
}

#[test]
fn reads_that_overlap_the_write_see_it() {
    let cluster = Cluster::start(2);
    let mut clients = cluster.clients();
    for (round, (written, read)) in [(1, 2), (2, 1), (2, 2)].into_iter().cycle().take(30).enumerate() {
        let key = format!("k{round}");
        let (writer, reader) = (round % 2, (round / 2) % 2);
        for target in spellings(&key, written, 2) {
            clients[writer].put(&target, target.as_bytes());
            for seen in spellings(&key, read, 2) {
                assert_eq!(clients[reader].value(&seen), target.as_bytes(), "PUT {written}/2, GET {read}/2");
            }
        }
    }
}

#[test]
fn overwrites_that_overlap_are_seen() {
    let cluster = Cluster::start(2);
    let mut clients = cluster.clients();
    for round in 0..20 {
        let key = format!("k{round}");
        clients[round % 2].put(&entity_at(&key, 2, 2), b"old");
        clients[(round + 1) % 2].put(&entity_at(&key, 2, 2), b"new");
        for client in &mut clients {
            assert_eq!(client.value(&entity_at(&key, 1, 2)), b"new");
        }
        clients[round % 2].put(&entity_at(&key, 1, 2), b"newest");
        for client in &mut clients {
            assert_eq!(client.value(&entity_at(&key, 2, 2)), b"newest");
        }
    }
}

#[test]
fn deletes_that_overlap_are_seen() {
    let cluster = Cluster::start(2);
    let mut clients = cluster.clients();
    for round in 0..20 {
        let key = format!("k{round}");
        clients[round % 2].put(&entity_at(&key, 2, 2), b"v");
        clients[(round + 1) % 2].delete(&entity_at(&key, 1, 2));
        for client in &mut clients {
            client.absent(&entity_at(&key, 2, 2));
        }
        clients[round % 2].put(&entity_at(&key, 1, 2), b"v");
        assert_eq!(clients[(round + 1) % 2].value(&entity_at(&key, 2, 2)), b"v");
        clients[round % 2].delete(&entity_at(&key, 2, 2));
        for client in &mut clients {
            client.absent(&entity_at(&key, 1, 2));
        }
    }
}

/// Stops node `away`, lets `change` happen on the other one, starts it again, and gives clients of both.
fn while_away(cluster: &mut Cluster, away: usize, hard: bool, change: impl FnOnce(&mut Client)) -> Vec<Client> {
    if hard {
        cluster.kill(away);
    } else {
        assert!(cluster.terminate(away).success());
    }
    change(&mut cluster.client(1 - away));
    cluster.restart(away);
    cluster.wait_whole();
    cluster.clients()
}

#[test]
fn a_write_that_a_node_missed_is_read_through_it() {
    for (away, hard) in [(0, true), (1, true), (1, false)] {
        let mut cluster = Cluster::start(2);
        let mut clients = while_away(&mut cluster, away, hard, |client| {
            client.put(&entity_at("k", 1, 2), b"missed");
        });
        assert_eq!(clients[away].value(&entity_at("k", 2, 2)), b"missed");
        assert_eq!(clients[1 - away].value(&entity_at("k", 2, 2)), b"missed");
        assert_eq!(cluster.copies("k"), 2, "the read at a quorum has written it back");
    }
}

#[test]
fn a_delete_that_a_node_missed_is_not_undone_by_it() {
    for (away, hard) in [(0, true), (1, false)] {
        let mut cluster = Cluster::start(2);
        cluster.client(0).put(&entity_at("k", 2, 2), b"v");
        let mut clients = while_away(&mut cluster, away, hard, |client| {
            client.delete(&entity_at("k", 1, 2));
        });
        clients[away].absent(&entity_at("k", 2, 2));
        clients[1 - away].absent(&entity_at("k", 2, 2));
        clients[away].absent(&entity_at("k", 1, 2));
        assert_eq!(cluster.copies("k"), 0);
    }
}

#[test]
fn an_overwrite_that_a_node_missed_wins_over_what_it_has() {
    for (away, hard) in [(0, true), (1, false)] {
        let mut cluster = Cluster::start(2);
        cluster.client(1).put(&entity_at("k", 2, 2), b"old");
        let mut clients = while_away(&mut cluster, away, hard, |client| {
            client.put(&entity_at("k", 1, 2), b"new");
        });
        assert_eq!(clients[away].value(&entity_at("k", 2, 2)), b"new");
        assert_eq!(clients[1 - away].value(&entity_at("k", 2, 2)), b"new");
        assert_eq!(clients[away].value(&entity_at("k", 1, 2)), b"new");
    }
}

#[test]
fn a_write_and_a_delete_missed_in_turn_end_with_the_last() {
    let mut cluster = Cluster::start(2);
    cluster.client(0).put(&entity_at("k", 2, 2), b"first");
    while_away(&mut cluster, 1, true, |client| {
        client.delete(&entity_at("k", 1, 2));
    });
    let mut clients = while_away(&mut cluster, 0, true, |client| {
        client.put(&entity_at("k", 1, 2), b"last");
    });
    for client in &mut clients {
        assert_eq!(client.value(&entity_at("k", 2, 2)), b"last");
    }
}

#[test]
fn both_nodes_restarted_have_everything() {
    let mut cluster = Cluster::start(2);
    for number in 0..50 {
        cluster.client(number % 2).put(&entity_at(format!("k{number}"), 2, 2), format!("{number}").as_bytes());
    }
    cluster.kill_all();
    cluster.spawn_all();
    cluster.wait_whole();
    for (ack, mut client) in [(1, cluster.client(0)), (2, cluster.client(1))] {
        for number in 0..50 {
            assert_eq!(client.value(&entity_at(format!("k{number}"), ack, 2)), format!("{number}").as_bytes());
        }
    }
}
