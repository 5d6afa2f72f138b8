//! A write to the log that fails for another reason than space: the store is poisoned until a restart.
//! The failure is real: the node is forbidden, while it runs, to write beyond the beginning of any file.

use std::process::Command;

use rustix::process::{Resource, Rlimit, prlimit};

use crate::support::{Cluster, entity, entity_at, wait_until};

/// Starts a node that lives on when a write is refused for the size of its file.
fn spawn_undaunted(cluster: &mut Cluster, index: usize) {
    let serve = cluster.serve(index);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(serve.get_program()).args(serve.get_args());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    cluster.spawn_as(index, command);
}

/// More than a node logs, and less than it writes to the store.
const BEGINNING: u64 = 100_000;

fn forbid_writes(cluster: &Cluster, index: usize, forbidden: bool) {
    let current = forbidden.then_some(BEGINNING);
    prlimit(Some(cluster.pid(index)), Resource::Fsize, Rlimit { current, maximum: None }).expect("limits can be set");
}

#[test]
fn a_failed_log_write_leaves_a_node_that_only_reads_until_it_is_restarted() {
    let mut cluster = Cluster::prepare(1, &[]);
    spawn_undaunted(&mut cluster, 0);
    cluster.wait_whole();
    let mut client = cluster.client(0);
    client.put(&entity("before"), b"v");
    client.put(&entity("much"), &vec![b'v'; 2 * BEGINNING as usize]);
    forbid_writes(&cluster, 0, true);
    let first = client.ok("PUT", &entity("failed"), Some(b"v"));
    assert!(matches!(first.status, 503 | 504), "{first:?}");
    wait_until("the node is not ready", || client.get("/readyz").status == 503);
    assert_eq!(client.get("/livez").status, 200);
    forbid_writes(&cluster, 0, false);
    for _ in 0..20 {
        client.ok("PUT", &entity("after"), Some(b"v")).problem(503);
        assert_eq!(client.value(&entity("before")), b"v", "reads go on");
        assert_eq!(client.get("/readyz").status, 503, "a log that has failed once is not trusted again");
    }
    let logged = cluster.log(0).matches("a write to the log failed").count();
    assert_eq!(logged, 1, "logged once, when it happened:\n{}", cluster.log(0));
    cluster.kill(0);
    cluster.restart(0);
    let mut client = cluster.client(0);
    assert_eq!(client.value(&entity("before")), b"v");
    client.absent(&entity("after"));
    client.put(&entity("after"), b"v");
}

#[test]
fn a_poisoned_replica_is_never_an_ack() {
    let mut cluster = Cluster::prepare(3, &[("KVORUM_COORDINATOR_DEADLINE", "2s")]);
    (0..3).for_each(|index| spawn_undaunted(&mut cluster, index));
    cluster.wait_whole();
    let mut client = cluster.client(0);
    client.put(&entity_at("much", 3, 3), &vec![b'v'; 2 * BEGINNING as usize]);
    forbid_writes(&cluster, 2, true);
    for number in 0..50 {
        client.put(&entity(format!("k{number}")), b"v");
        let problem = client.ok("PUT", &entity_at(format!("all {number}"), 3, 3), Some(b"v")).problem(504);
        assert_eq!(problem["acked"], 2, "{problem}");
    }
    cluster.kill(1);
    client.ok("PUT", &entity("k"), Some(b"v")).problem(504);
    assert_eq!(client.value(&entity("much")).len(), 2 * BEGINNING as usize, "two have it and can be asked");
    client.get(&entity("k0")).problem(504);
}
