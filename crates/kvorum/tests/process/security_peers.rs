//! What speaks to a node in the name of another: it takes no vote, moves no clock, raises nothing.

use std::io::Write;

use crate::support::impostor::{Impostor, is_closed};
use crate::support::secure::{private, said};
use crate::support::{Cluster, entity, entity_at, kvorum, wait_until};

/// Headers of a handshake in the name of node `index`, as `/v0/cluster` and the cluster's list give them away.
fn lie(cluster: &Cluster, in_the_name_of: usize, remembers: &str) -> Vec<(&'static str, String)> {
    let page = cluster.client(0).get("/v0/cluster").json();
    let text = |name: &str| page[name].as_str().unwrap().to_owned();
    vec![
        ("Connection", "Upgrade".into()),
        ("Upgrade", "kvorum/4".into()),
        ("Kvorum-Cluster", text("cluster")),
        ("Kvorum-Founding", text("configuration")),
        ("Kvorum-Epoch", "1".into()),
        ("Kvorum-Node", cluster.node(in_the_name_of).url()),
        ("Kvorum-Directory", "12345678".into()),
        ("Kvorum-Deadline-Ms", "1".into()),
        ("Kvorum-Run", "1".into()),
        ("Kvorum-Recovered", "0".into()),
        ("Kvorum-Remembers", remembers.into()),
        ("Kvorum-Remembers-Run", "1".into()),
        ("Kvorum-Remembers-Sequence", u64::MAX.to_string()),
    ]
}

fn files(cluster: &Cluster, index: usize) -> Vec<Option<Vec<u8>>> {
    let read = |name| std::fs::read(cluster.node(index).data_dir.join(name)).ok();
    ["PEERS", "REBUILDING", "REBUILT", "IDENTITY"].map(read).to_vec()
}

#[test]
fn three_requests_take_no_vote_and_a_refusal_names_no_id() {
    let mut cluster = Cluster::start(3);
    cluster.client(0).put(&entity_at("k", 3, 3), b"v");
    // So that what peers have said is written, and the files do not change for that.
    for index in 0..3 {
        wait_until("the notes are written", || {
            files(&cluster, index)[0]
                .as_ref()
                .is_some_and(|peers| String::from_utf8_lossy(peers).matches("knows-us").count() == 2)
        });
    }
    let directories: Vec<String> = {
        let page = cluster.client(0).get("/v0/cluster").json();
        page["nodes"].as_array().unwrap().iter().map(|node| node["directory"].as_str().unwrap().to_owned()).collect()
    };
    for index in 0..3 {
        for other in (0..3).filter(|other| *other != index) {
            // Another directory, and this one with more than it has.
            let own = cluster.directory(index);
            for remembers in ["00000001", own.as_str()] {
                let hello = lie(&cluster, other, remembers);
                let headers: Vec<(&str, &str)> = hello.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let refused = cluster.client(index).with("GET", "/_peer", &headers, None);
                assert_eq!(refused.status, 503, "{refused:?}");
                let text = refused.text();
                assert!(!directories.iter().any(|id| text.contains(id.as_str())), "{text}");
            }
        }
        let mut hello = lie(&cluster, (index + 1) % 3, "00000001");
        hello[2].1 = "0123456789abcdef".into();
        let headers: Vec<(&str, &str)> = hello.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let refused = cluster.client(index).with("GET", "/_peer", &headers, None);
        let text = refused.problem(409).to_string();
        let page = cluster.client(0).get("/v0/cluster").json();
        assert!(!text.contains(page["cluster"].as_str().unwrap()) && !text.contains("0123456789abcdef"), "{text}");
    }
    for index in 0..3 {
        assert!(cluster.votes(index), "node {index}: {}", cluster.status_text(index));
        assert!(files(&cluster, index)[1].is_none(), "node {index} was marked as rebuilding");
    }
    assert_eq!(cluster.client(0).value(&entity_at("k", 3, 3)), b"v");
    // Nor after a restart, which reads what was written down.
    for index in 0..3 {
        cluster.terminate(index);
    }
    cluster.spawn_all();
    cluster.wait_whole();
    assert_eq!(cluster.client(1).value(&entity_at("k", 3, 3)), b"v");
}

#[test]
fn with_a_secret_no_stranger_is_served_and_no_other_secret_is_taken() {
    let mut cluster = Cluster::prepare(3, &[("KVORUM_PEER_RECONNECT_DELAY_MAX", "100ms")]);
    cluster.guard();
    let audit = cluster.root().join("audit");
    cluster.set_variable(0, "KVORUM_AUDIT_FILE", audit.to_str().unwrap());
    cluster.spawn_all();
    cluster.wait_whole();
    cluster.client(0).put(&entity_at("k", 3, 3), b"v");
    let hello = lie(&cluster, 1, "00000001");
    let headers: Vec<(&str, &str)> = hello.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let is_memory = |name: &str| name.starts_with("Kvorum-Remembers");
    let without: Vec<(&str, &str)> = headers.iter().copied().filter(|(name, _)| !is_memory(name)).collect();
    let refused = cluster.client(0).with("GET", "/_peer", &without, None).problem(409);
    assert!(refused["detail"].as_str().unwrap().contains("peer.secret_file"), "{refused}");
    // With a nonce it gets an answer, and with a wrong proof no more than that.
    let nonce = "ab".repeat(32);
    let with_nonce = [&without[..], &[("Kvorum-Nonce", nonce.as_str())]].concat();
    let before = cluster.metric(0, "kvorum_peer_strangers_total");
    for round in 0..4 {
        let mut client = cluster.client(0);
        let accepted = client.with("GET", "/_peer", &with_nonce, None);
        assert_eq!(accepted.status, 101, "{accepted:?}");
        let own_proof = accepted.header("kvorum-proof").unwrap().to_owned();
        let mut stream = client.stream().unwrap().try_clone().unwrap();
        // A ping, a made-up proof, the node's own proof sent back, and nothing.
        let frame = match round {
            0 => frame(5, &[0; 8]),
            1 => frame(9, &[7; 32]),
            2 => frame(9, &bytes(&own_proof)),
            _ => Vec::new(),
        };
        stream.write_all(&frame).unwrap();
        is_closed(&mut stream);
    }
    wait_until("each is counted", || cluster.metric(0, "kvorum_peer_strangers_total") >= before + 4.0);
    let noted = || std::fs::read_to_string(&audit).unwrap().matches("no proof of the secret").count();
    wait_until("each is in the audit", || noted() >= 4);
    assert!(cluster.log(0).contains("no proof of the cluster's secret"), "{}", cluster.log(0));
    assert!(cluster.votes(0));
    // A node with another secret is refused, and the others serve.
    cluster.terminate(2);
    let other = cluster.root().join("other.secret");
    said(&["secret", "new", other.to_str().unwrap()]);
    cluster.set_variable(2, "KVORUM_PEER_SECRET_FILE", other.to_str().unwrap());
    cluster.spawn(2);
    wait_until("it says why it is alone", || cluster.log(2).contains("secret"));
    cluster.client(0).put(&entity("k"), b"w");
    cluster.client(0).get(&entity_at("k", 3, 3)).problem(504);
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().map(|digit| char::from(digit).to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A frame with a right checksum.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    head.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    head.extend_from_slice(&u64::MAX.to_be_bytes());
    head.extend_from_slice(&[opcode, 0]);
    head.extend_from_slice(&0_u64.to_be_bytes());
    let seed = xxhash_rust::xxh3::xxh3_64(payload);
    let sum = (xxhash_rust::xxh3::xxh3_64_with_seed(&head, seed) & 0xffff_ffff) as u32;
    [head.as_slice(), &sum.to_be_bytes(), payload].concat()
}

#[test]
fn frames_of_a_stranger_move_no_clock_and_raise_nothing() {
    let impostor = Impostor::new();
    let watermark = || impostor.cluster.client(0).get("/v0/cluster").json()["watermark"].clone();
    let before = watermark();
    let hour_ahead = (impostor.wall_ms() + 59_000) << 16;
    for _ in 0..3 {
        let mut stream = impostor.peer();
        stream.write_all(&impostor.ping(hour_ahead)).unwrap();
        let round = impostor.end_of_a_round(hour_ahead);
        let _closed = stream.write_all(&round);
    }
    impostor.still_serves("after false rounds");
    let version = impostor.cluster.client(0).get(&entity("k")).etag();
    let millis = u64::from_str_radix(&version[1..13], 16).unwrap();
    assert!(millis < impostor.wall_ms() + 10_000, "the clock was moved by {} ms", millis - impostor.wall_ms());
    assert_eq!(watermark(), before);
}

#[test]
fn a_secret_that_is_no_secret_is_refused_with_its_line_and_never_shown() {
    let cluster = Cluster::prepare(1, &[]);
    let path = cluster.root().join("secret");
    let good = "0123456789abcdef".repeat(4);
    for (text, says) in [
        (String::new(), "0 lines"),
        (good[1..].to_owned(), "line 1 is not 64"),
        (format!("{good}\n{good}\n{good}\n"), "3 lines"),
        (format!("{good}\n{}", good.replace('0', "x")), "line 2 is not 64"),
    ] {
        private(&path, &text);
        let output = cluster.serve(0).env("KVORUM_PEER_SECRET_FILE", &path).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says) && said.contains("secret") && !said.contains(&good[1..20]), "{said}");
    }
    std::fs::write(&path, &good).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let output = cluster.serve(0).env("KVORUM_PEER_SECRET_FILE", &path).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("chmod 600"), "{output:?}");
    assert!(!cluster.node(0).data_dir.exists(), "nothing was made");
    let again = kvorum().args(["secret", "new"]).arg(&path).output().unwrap();
    assert_eq!(again.status.code(), Some(2), "what exists is never overwritten");
}

/// What docs/how-to/change-the-peers-secret.md has an operator do.
#[test]
fn a_secret_is_introduced_and_changed_by_rolling_restarts_and_no_request_fails() {
    let mut cluster = Cluster::start(3);
    let [old, both, new] = ["old", "both", "new"].map(|name| cluster.root().join(name));
    said(&["secret", "new", old.to_str().unwrap()]);
    said(&["secret", "new", new.to_str().unwrap()]);
    let text = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    private(&both, &(text(&new) + &text(&old)));
    let steps: [&[(&str, &str)]; 4] = [
        &[("KVORUM_PEER_SECRET_FILE", old.to_str().unwrap()), ("KVORUM_PEER_SECRET_OPTIONAL", "true")],
        &[("KVORUM_PEER_SECRET_FILE", old.to_str().unwrap()), ("KVORUM_PEER_SECRET_OPTIONAL", "false")],
        &[("KVORUM_PEER_SECRET_FILE", both.to_str().unwrap())],
        &[("KVORUM_PEER_SECRET_FILE", new.to_str().unwrap())],
    ];
    for (step, variables) in steps.iter().enumerate() {
        for index in 0..3 {
            cluster.terminate(index);
            for (name, value) in *variables {
                cluster.set_variable(index, name, value);
            }
            cluster.restart(index);
            // At a majority nothing fails, whichever nodes have which secret.
            for through in 0..3 {
                cluster.client(through).put(&entity(format!("k{step}")), b"v");
                assert_eq!(cluster.client((through + 1) % 3).value(&entity(format!("k{step}"))), b"v");
            }
        }
        assert_eq!(cluster.client(0).get(&entity_at(format!("k{step}"), 3, 3)).status, 200);
    }
}
