//! Refusals to start: exit code 2, and a message that says why and what to do.

use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::cluster::{files, free_port, output_file};
use crate::support::{Cluster, entity, wait_until};

/// Runs a command that must end by itself, and kills it if it does not.
fn ends(cluster: &Cluster, command: &mut Command) -> Output {
    let (out, err) = (cluster.root().join("stdout"), cluster.root().join("stderr"));
    let mut child = command.stdout(output_file(&out)).stderr(output_file(&err)).spawn().unwrap();
    let mut status = None;
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while status.is_none() && std::time::Instant::now() < deadline {
        status = child.try_wait().unwrap();
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let _gone = child.kill();
    let status = status.unwrap_or_else(|| child.wait().unwrap());
    Output { status, stdout: std::fs::read(out).unwrap(), stderr: std::fs::read(err).unwrap() }
}

/// Checks that node 0 refuses to start and that its output contains one of each group of words.
#[track_caller]
fn refuses(cluster: &Cluster, command: &mut Command, words: &[&[&str]]) {
    let output = ends(cluster, command);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{text}");
    let lower = text.to_lowercase();
    for alternatives in words {
        assert!(alternatives.iter().any(|word| lower.contains(word)), "none of {alternatives:?} in: {text}");
    }
}

#[test]
fn a_port_in_use() {
    let cluster = Cluster::prepare(1, &[]);
    let address = cluster.node(0).address;
    let _taken = TcpListener::bind(address).unwrap();
    refuses(&cluster, &mut cluster.serve(0), &[&[&address.to_string()], &["in use"]]);
}

#[test]
fn a_node_that_is_not_in_its_own_cluster() {
    let mut cluster = Cluster::prepare(1, &[]);
    let address = cluster.node(0).address.to_string();
    cluster.set_list(0, "http://127.0.0.1:1,http://127.0.0.1:2".to_owned());
    refuses(&cluster, &mut cluster.serve(0), &[&[&address], &["cluster"], &["advertise"]]);
    assert!(!cluster.node(0).data_dir.exists() || files(&cluster.node(0).data_dir).is_empty(), "nothing was made");
}

#[test]
fn a_second_process_on_the_same_directory() {
    let mut other = Cluster::prepare(1, &[]);
    let mut cluster = Cluster::start(1);
    cluster.client(0).put(&entity("k"), b"v");
    let directory = cluster.node(0).data_dir.clone();
    other.set_data_dir(0, directory.clone());
    refuses(
        &other,
        &mut other.serve(0),
        &[&[&directory.display().to_string().to_lowercase()], &["process", "lock", "use"]],
    );
    assert_eq!(cluster.client(0).value(&entity("k")), b"v", "the first one is not disturbed");
    cluster.kill(0);
    cluster.restart(0);
    assert_eq!(cluster.client(0).value(&entity("k")), b"v", "a lock does not outlive its process");
}

#[test]
fn a_directory_with_something_else_in_it() {
    let cluster = Cluster::prepare(1, &[]);
    let directory = cluster.node(0).data_dir.clone();
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("thesis.tex"), "mine").unwrap();
    refuses(&cluster, &mut cluster.serve(0), &[&[&directory.display().to_string().to_lowercase()]]);
    assert_eq!(std::fs::read(directory.join("thesis.tex")).unwrap(), b"mine");
    assert_eq!(files(&directory).len(), 1, "nothing was added");
}

#[test]
fn a_directory_that_is_a_file() {
    let cluster = Cluster::prepare(1, &[]);
    let directory = cluster.node(0).data_dir.clone();
    std::fs::write(&directory, "a file").unwrap();
    refuses(&cluster, &mut cluster.serve(0), &[&[&directory.display().to_string().to_lowercase()]]);
}

#[test]
fn a_directory_written_by_a_newer_build_or_unreadable() {
    let mut cluster = Cluster::start(1);
    assert!(cluster.terminate(0).success());
    let directory = cluster.node(0).data_dir.clone();
    let format = files(&directory)
        .into_iter()
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().to_lowercase().contains("format")))
        .unwrap_or_else(|| panic!("no format-version file in {:?}", files(&directory)));
    let good = std::fs::read_to_string(&format).unwrap();
    let newer = good.replace(|byte: char| byte.is_ascii_digit(), "9");
    assert_ne!(newer, good, "the file has a number");
    std::fs::write(&format, newer).unwrap();
    refuses(
        &cluster,
        &mut cluster.serve(0),
        &[&[&directory.display().to_string().to_lowercase()], &["newer", "format", "version"]],
    );
    std::fs::write(&format, b"\xff\x00garbage").unwrap();
    refuses(&cluster, &mut cluster.serve(0), &[&[&directory.display().to_string().to_lowercase()]]);
    std::fs::write(&format, good).unwrap();
    cluster.restart(0);
}

#[test]
fn a_directory_of_another_cluster() {
    let mut cluster = Cluster::prepare(1, &[]);
    let list = format!("{},http://127.0.0.1:1", cluster.node(0).url());
    // Alone it founds nothing, and knows no more of its cluster than the list.
    cluster.set_list(0, list.clone());
    cluster.spawn(0);
    wait_until("it runs", || cluster.client(0).send("GET", "/v0/status", &[], None).is_ok());
    cluster.kill(0);
    cluster.set_list(0, format!("{list},http://127.0.0.1:2"));
    refuses(&cluster, &mut cluster.serve(0), &[&["cluster"]]);
}

#[test]
fn a_directory_of_another_node() {
    let mut cluster = Cluster::start(1);
    assert!(cluster.terminate(0).success());
    let (port, list) = (free_port(), cluster.node(0).url());
    cluster.set_variable(0, "KVORUM_ADVERTISE", &format!("http://127.0.0.1:{port}"));
    cluster.set_list(0, format!("{list},http://127.0.0.1:{port}"));
    refuses(&cluster, &mut cluster.serve(0), &[&["the data directory is of"], &[&list]]);
}

#[test]
fn a_setting_that_does_not_exist_or_makes_no_sense() {
    let cluster = Cluster::prepare(1, &[]);
    refuses(&cluster, cluster.serve(0).env("KVORUM_DURABILITY", "maybe"), &[&["durability"], &["fsync"]]);
    refuses(&cluster, cluster.serve(0).env("KVORUM_MEMORY_BYTES", "lots"), &[&["memory_bytes"]]);
    let file = cluster.root().join("kvorum.toml");
    std::fs::write(&file, "durabillity = \"os\"\n").unwrap();
    refuses(&cluster, cluster.serve(0).arg("--config").arg(&file), &[&["durabillity"], &["durability"]]);
}

#[test]
fn a_new_node_says_whom_it_waits_for() {
    let mut cluster = Cluster::prepare(3, &[("KVORUM_COORDINATOR_DEADLINE", "1s")]);
    cluster.spawn(0);
    cluster.spawn(1);
    let missing = cluster.node(2).url();
    for index in 0..2 {
        wait_until("it has connected to the other", || {
            let response = cluster.client(index).send("GET", "/readyz", &[], None);
            response.is_ok_and(|response| response.text().contains("registered by 1 of the 2 peers needed"))
        });
        let mut client = cluster.client(index);
        let detail = client.get("/readyz").problem(503)["detail"].to_string();
        assert!(detail.contains(&format!("waiting for: {missing}")), "{detail}");
        assert_eq!(client.get("/v0/status").status, 200, "it has started, and its requests wait");
        let detail = client.ok("PUT", &entity("k"), Some(b"v")).problem(503)["detail"].to_string();
        assert!(detail.contains("/readyz"), "after its deadline: {detail}");
    }
    cluster.spawn(2);
    cluster.wait_whole();
    cluster.kill_all();
    cluster.spawn(0);
    cluster.spawn(1);
    cluster.wait_ready(0);
    cluster.wait_answers(0, 2);
}

#[test]
fn nodes_with_different_lists_do_not_peer() {
    let mut cluster = Cluster::prepare(2, &[("KVORUM_COORDINATOR_DEADLINE", "1s")]);
    let (first, second) = (cluster.node(0).url(), cluster.node(1).url());
    cluster.set_list(1, format!("{first},{second},http://127.0.0.1:1"));
    cluster.spawn_all();
    for index in 0..2 {
        wait_until("the node is alive", || {
            cluster.client(index).send("GET", "/livez", &[], None).is_ok_and(|response| response.status == 200)
        });
        // A new node without a handshake with a majority of its cluster may replace a lost one: 503 or 504.
        let response = cluster.client(index).ok("PUT", &entity("k"), Some(b"v"));
        assert!(matches!(response.status, 503 | 504), "{response:?}");
        wait_until("the refusal is logged", || {
            let log = cluster.log(index).to_lowercase();
            log.contains("cluster") && (log.contains("refus") || log.contains("mismatch") || log.contains("differ"))
        });
        let log = cluster.log(index).to_lowercase();
        let lines = log.lines().filter(|line| line.contains("refus") || line.contains("differ")).count();
        assert!(lines < 20, "logged once, not with every attempt:\n{log}");
    }
    let status = cluster.status_text(0);
    assert!(status.contains("refused") && status.contains("--cluster"), "why, and what to do: {status}");
}
