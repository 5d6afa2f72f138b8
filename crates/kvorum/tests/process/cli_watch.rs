//! `top`, `slow`, `hot` and `where` against real nodes: what they show while nodes work, pause and have older neighbours.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::secure::private;
use crate::support::{Cluster, kvorum, wait_for, wait_until};

/// Writes and reads one key more than others until it is dropped.
struct Load(Child);

impl Load {
    fn start(urls: &str) -> Self {
        let mut command = kvorum();
        command.args(["bench", "run", "--url", urls, "--workload", "ycsb-b", "--keys", "500", "--rate", "500"]);
        command.args(["--duration", "10m", "--warmup", "0ms"]).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

fn urls(cluster: &Cluster) -> String {
    (0..cluster.len()).map(|index| cluster.node(index).url()).collect::<Vec<_>>().join(",")
}

/// What a command prints, as lines of JSON.
#[track_caller]
fn json_lines(args: &[&str]) -> Vec<Value> {
    let output = kvorum().args(args).args(["-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn top_shows_a_second_after_the_other_finds_all_nodes_and_says_what_a_paused_one_means() {
    let cluster = Cluster::start(3);
    let _load = Load::start(&urls(&cluster));
    let mut top = kvorum();
    top.args(["top", "-o", "json", "--url", &cluster.node(1).url()]).stdout(Stdio::piped());
    let mut top = top.spawn().unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let mut frame = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = wait_for("a second with load", || {
        let frame = frame();
        (frame["all"]["rates"]["PUT"].as_f64()? > 5.0 && frame["all"]["rates"]["GET"].as_f64()? > 50.0).then_some(frame)
    });
    assert!(first["all"]["p99_ms"]["PUT"].as_f64() >= first["all"]["p50_ms"]["PUT"].as_f64(), "{first}");
    assert!(first["all"]["statuses"]["201"].as_f64().unwrap() > 5.0, "{first}");
    let nodes: Vec<&Value> = first["nodes"].as_array().unwrap().iter().collect();
    for (index, node) in nodes.iter().enumerate() {
        assert!(nodes.len() == 3 && node["state"] == "up", "{first}");
        assert!(nodes.iter().any(|node| node["node"] == cluster.node(index).url()), "{first}");
    }
    let verdict = first["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("reads and writes at 2/3 work; one node may be lost"), "{verdict}");
    cluster.pause(2);
    let paused = cluster.node(2).url();
    let expected = format!("reads and writes at 2/3 work; one more loss stops them; {paused} is silent");
    wait_for("the paused node is silent", || frame()["verdict"].as_str().unwrap().starts_with(&expected).then_some(()));
    wait_for("what the others keep for it is shown", || {
        let frame = frame();
        let node = frame["nodes"].as_array().unwrap().iter().find(|node| node["node"] == paused).cloned();
        (node?["hints"].as_u64()? > 0).then_some(())
    });
    cluster.resume(2);
    wait_for("it is up again", || {
        frame()["nodes"].as_array().unwrap().iter().all(|node| node["state"] == "up").then_some(())
    });
    kill_process(Pid::from_child(&top), Signal::INT).unwrap();
    assert_eq!(top.wait().unwrap().code(), Some(0));
}

/// `kvorum top` on a terminal of this size, and what it has printed there.
fn on_a_terminal(columns: u16, url: &str) -> (Child, ChildStdin) {
    let shell = format!("stty cols {columns} rows 24; exec {} top --url {url}", env!("CARGO_BIN_EXE_kvorum"));
    let mut script = Command::new("script");
    script.args(["-qefc", &shell, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = script.spawn().expect("`script` is part of every Debian");
    let stdin = script.stdin.take().unwrap();
    (script, stdin)
}

#[test]
fn top_gives_the_terminal_back_as_it_was_and_fits_a_narrow_one() {
    let cluster = Cluster::start(1);
    let (mut script, mut keyboard) = on_a_terminal(40, &cluster.node(0).url());
    let mut out = BufReader::new(script.stdout.take().unwrap());
    let mut shown = Vec::new();
    // Two whole frames: each ends so.
    while String::from_utf8_lossy(&shown).matches("\u{1b}[J").count() < 2 {
        assert!(out.read_until(b'J', &mut shown).unwrap() > 0, "{:?}", String::from_utf8_lossy(&shown));
    }
    keyboard.write_all(b"\x03").unwrap();
    std::io::Read::read_to_end(&mut out, &mut shown).unwrap();
    assert_eq!(script.wait().unwrap().code(), Some(0), "Ctrl-C is how it ends");
    let text = String::from_utf8(shown).unwrap();
    assert!(text.starts_with("\u{1b}[?1049h\u{1b}[?25l"), "{text:?}");
    assert!(text.trim_end().ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{text:?}");
    let visible = |line: &str| {
        let mut parts = line.split('\u{1b}');
        let first = parts.next().unwrap().to_owned();
        parts.fold(first, |text, part| text + part.split_once(|letter: char| letter.is_alphabetic()).unwrap().1)
    };
    for line in text.lines().map(visible) {
        assert!(line.trim_end().chars().count() <= 40, "{line:?}");
    }
    assert!(text.contains("reads and writes at 1/1 work"), "{text:?}");
}

#[test]
fn hot_adds_up_what_all_nodes_counted_and_slow_has_the_requests_of_all() {
    let cluster = Cluster::with(3, &[("KVORUM_COORDINATOR_DEADLINE", "1s")]);
    let urls = urls(&cluster);
    let mut clients = cluster.clients();
    let hot = wait_for("all nodes have a window with the hot key", || {
        for _ in 0..100 {
            for client in &mut clients {
                client.put(&crate::support::entity("hot"), b"v");
            }
        }
        let all = json_lines(&["hot", "--url", &urls]).remove(0);
        let each = (0..3).map(|index| json_lines(&["hot", "--url", &cluster.node(index).url()]).remove(0));
        let have = each.into_iter().all(|one| one["requests"].as_u64().unwrap() > 0);
        (have && all["nodes"] == 3 && all["keys"][0]["key"] == "hot").then_some(all)
    });
    let where_is = json_lines(&["where", "hot", "--url", &urls]).remove(0);
    assert_eq!(
        (&hot["keys"][0]["hash"], &hot["partitions"][0]["partition"]),
        (&where_is["hash"], &where_is["partition"])
    );
    for (paused, asked) in [(0, 1), (0, 2), (1, 0)] {
        cluster.pause(paused);
        let mut put = kvorum();
        let put = put.args(["put", "slow", "v", "--ack", "3", "--url", &cluster.node(asked).url()]).output().unwrap();
        assert_eq!(put.status.code(), Some(3), "{put:?}");
        cluster.resume(paused);
    }
    let slow = json_lines(&["slow", "--limit", "1000", "--url", &urls]);
    for index in 0..3 {
        assert!(slow.iter().any(|request| request["node"] == cluster.node(index).url()), "node {index}");
    }
    assert!(slow.windows(2).all(|two| two[0]["at_ms"].as_u64() >= two[1]["at_ms"].as_u64()), "newest first");
    let text = kvorum().args(["slow", "--url", &urls]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.lines().count() > 3 && text.contains("waited for"), "{text}");
}

#[test]
fn who_cannot_be_asked_is_named_and_the_others_are_shown() {
    let (mut cluster, keys) = Cluster::secured(2, &[]);
    let urls = urls(&cluster);
    let key = cluster.root().join("app.key");
    private(&key, &keys.add("app", "app"));
    (0..2).for_each(|index| cluster.reload(index));
    let refused = kvorum().args(["hot", "--url", &urls, "--key-file"]).arg(&key).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), said.matches("(unauthorized)").count()), (Some(4), 2), "{said}");
    assert!(said.contains("a key that has the right `status`"), "{said}");
    private(&key, &keys.add("operator", "operator"));
    (0..2).for_each(|index| cluster.reload(index));
    cluster.kill(1);
    let partly = kvorum().args(["hot", "--url", &urls, "--key-file"]).arg(&key).output().unwrap();
    let said = String::from_utf8(partly.stderr).unwrap();
    assert!(
        partly.status.success() && said.contains(&format!("{} is left out (silent)", cluster.node(1).url())),
        "{said}"
    );
    let once = kvorum().args(["top", "--once", "--url", &cluster.node(1).url()]).output().unwrap();
    assert_eq!(once.status.code(), Some(4), "{once:?}");
    wait_until("top shows the node that is gone", || {
        let mut top = kvorum();
        let output = top.args(["top", "--once", "--url", &urls, "--key-file"]).arg(&key).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success() && text.contains("FAIL: 1 of 2 nodes do not take part")
    });
}
