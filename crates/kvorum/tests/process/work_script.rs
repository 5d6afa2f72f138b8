//! Scripts against real nodes: what they compute, what they may take, and that the node serves on whatever they do.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::http::{Client, Response, entity, entity_at};
use crate::support::{Cluster, kvorum, wait_until};

const ENABLED: [(&str, &str); 1] = [("KVORUM_SCRIPTS_ENABLED", "true")];
/// How often each word comes.
const WORDS: &str = "\
function map(key, value, meta)
  for word in string.gmatch(value, '%a+') do emit(word, 1) end
end
function combine(a, b) return a + b end
";

/// Pairs, and the trailer.
fn lines(answer: &Response) -> (Vec<(Value, Value)>, Value) {
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("application/x-ndjson")),
        "{}",
        answer.text()
    );
    let text = answer.text();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let trailer = lines.pop().unwrap();
    (lines.into_iter().map(|line| (line["key"].clone(), line["value"].clone())).collect(), trailer)
}

fn run(client: &mut Client, query: &str, source: &str) -> Response {
    client.ok("POST", &format!("/v0/script?{query}"), Some(source.as_bytes()))
}

fn put_texts(client: &mut Client, count: usize) -> BTreeMap<String, u64> {
    let mut words = BTreeMap::new();
    for part in (0..count).collect::<Vec<_>>().chunks(1000) {
        let mut body = String::new();
        for number in part {
            let text = ["ash", "oak", "elm"][number % 3].to_owned() + " tree";
            text.split(' ').for_each(|word| *words.entry(word.to_owned()).or_default() += 1);
            body += &format!("{}\n", json!({"op": "put", "key": format!("t/{number:05}"), "value": text}));
        }
        let answer = client.ok("POST", "/v0/batch", Some(body.as_bytes())).text();
        assert_eq!(answer.matches("\"status\":201").count(), part.len(), "{answer:.300}");
    }
    words
}

#[test]
fn a_script_maps_each_record_of_the_cluster_once_whoever_is_asked_and_whatever_replicas_have_missed() {
    let mut cluster = Cluster::with(3, &ENABLED);
    let mut client = cluster.client(0);
    cluster.kill(2);
    // Many enough that what is emitted is combined on the way.
    let mut words = put_texts(&mut client, 20_000);
    cluster.restart(2);
    cluster.wait_whole();
    client.put(&entity("t/deleted"), b"never");
    client.delete(&entity("t/deleted"));
    client.put(&entity_at("t/one", 1, 1), b"birch");
    words.insert("birch".to_owned(), 1);
    for mut client in cluster.clients() {
        let (pairs, trailer) = lines(&run(&mut client, "prefix=t/", WORDS));
        let expected: Vec<(Value, Value)> = words.iter().map(|(word, count)| (json!(word), json!(count))).collect();
        assert_eq!(pairs, expected);
        assert_eq!(
            (&trailer["complete"], &trailer["count"], &trailer["after"]),
            (&json!(true), &json!(20_001), &Value::Null)
        );
    }
    let finished = format!("{WORDS}function finish(pairs) return {{{{key = 'words', value = #pairs}}}} end");
    let (pairs, _) = lines(&run(&mut client, "start=t/&end=t0&ack=2&from=3", &finished));
    assert_eq!(pairs, [(json!("words"), json!(words.len()))]);
    let (none, trailer) = lines(&run(&mut client, "prefix=nothing", WORDS));
    assert_eq!((none.len(), &trailer["count"]), (0, &json!(0)));
}

#[test]
fn what_a_script_emits_in_quantity_is_combined_on_the_way_or_refused() {
    let cluster = Cluster::with(3, &ENABLED);
    let mut client = cluster.client(0);
    for number in 0..40 {
        client.put(&entity(format!("k{number}")), b"x");
    }
    // 50 KiB of each record: more than a page has, and more than may be held.
    let long = "function map(key) emit('all', string.rep(key, 50 * 1024 / #key)) end\n";
    let (pairs, _) =
        lines(&run(&mut client, "prefix=k", &format!("{long}function combine(a, b) return string.sub(a, 1, 2) end")));
    assert_eq!(pairs, [(json!("all"), json!("k0"))]);
    let problem = run(&mut client, "prefix=k", long).problem(422);
    assert!(problem["detail"].as_str().unwrap().contains("512 KiB"), "{problem}");
    let much = "function map(key) emit(key, string.rep('x', 100 * 1024)) end";
    let problem = run(&mut client, "prefix=k", much).problem(422);
    assert!(problem["detail"].as_str().unwrap().contains("64 KiB"), "{problem}");
}

#[test]
fn a_hostile_script_is_a_422_that_says_why_and_the_node_serves_on() {
    let cluster = Cluster::with(3, &ENABLED);
    let mut client = cluster.client(0);
    client.put(&entity("k"), b"value");
    // Which of the two limits of time comes first depends on what else the machine does.
    let late = ["more than 1 s of CPU", "more than 5 s"];
    for source in [
        "function map() while true do end end",
        "function map() while true do pcall(function() while true do end end) end end",
    ] {
        let problem = run(&mut client, "prefix=", source).problem(422);
        let detail = problem["detail"].as_str().unwrap();
        assert!(late.iter().any(|says| detail.contains(says)), "{source}: {problem}");
        assert_eq!(client.value(&entity("k")), b"value");
    }
    for (source, says) in [
        ("function map() string.find(string.rep('a', 1e6), string.rep('a?', 1e4) .. 'b') end", ""),
        ("function map() local t = {} while true do t[#t + 1] = string.rep('x', 1e6) .. #t end end", "MiB"),
        ("function map() while true do emit('k', string.rep('x', 1e5)) end end", "MiB"),
        ("function map() io.open('/etc/passwd') end", "1"),
        ("function map(key)\n\n  error('not ' .. key) end", "3"),
        ("function map( end", "1"),
        ("emit('k', 1)", "map"),
        ("function nothing() end", "map"),
    ] {
        let problem = run(&mut client, "prefix=", source).problem(422);
        assert!(problem["detail"].as_str().unwrap().contains(says), "{source}: {problem}");
        assert_eq!(client.value(&entity("k")), b"value");
    }
    client.ok("POST", "/v0/script", Some(b"")).problem(400);
    client.ok("POST", "/v0/script?prefix=&limit=1", Some(b"")).problem(400);
    let long = " ".repeat(64 * 1024 + 1);
    run(&mut client, "prefix=", &long).problem(413);
    wait_until("no worker is left", || (0..3).all(|index| workers(&cluster, index).is_empty()));
}

/// Processes that a node has started.
fn workers(cluster: &Cluster, index: usize) -> Vec<String> {
    let pid = cluster.pid(index).as_raw_nonzero();
    let children = std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    children.flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn a_worker_does_not_outlive_its_node() {
    let mut cluster = Cluster::with(1, &ENABLED);
    cluster.client(0).put(&entity("k"), b"value");
    let mut busy = cluster.client(0);
    let source = "function map() while true do end end";
    busy.write(&crate::support::http::request("POST", "/v0/script?prefix=", &[], Some(source.as_bytes()))).unwrap();
    let mut found = Vec::new();
    wait_until("a worker runs the script", || {
        found = workers(&cluster, 0);
        !found.is_empty()
    });
    cluster.kill(0);
    wait_until("it is gone", || found.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()));
}

#[test]
fn scripts_are_off_unless_each_node_allows_them_and_only_so_many_run_at_once() {
    let off = Cluster::start(1);
    let problem = run(&mut off.client(0), "prefix=", WORDS).problem(501);
    assert!(problem["detail"].as_str().unwrap().contains("scripts.enabled"), "{problem}");
    let mut cluster = Cluster::prepare(3, &[]);
    cluster.set_variable(0, "KVORUM_SCRIPTS_ENABLED", "true");
    cluster.spawn_all();
    cluster.wait_whole();
    let mut client = cluster.client(0);
    put_texts(&mut client, 100);
    let problem = run(&mut client, "prefix=", WORDS).problem(422);
    assert!(problem["detail"].as_str().unwrap().contains("scripts.enabled"), "{problem}");
    let on = Cluster::with(3, &ENABLED);
    on.client(0).put(&entity("k"), b"value");
    let mut open: Vec<Client> = (0..12).map(|number| on.client(number % 3)).collect();
    let source = b"function map() while true do end end";
    for client in &mut open {
        client.write(&crate::support::http::request("POST", "/v0/script?prefix=", &[], Some(source))).unwrap();
    }
    let statuses: Vec<u16> = open.iter_mut().map(|client| client.receive("POST").unwrap().status).collect();
    assert!(statuses.iter().all(|status| [422, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&422) && statuses.contains(&503), "{statuses:?}");
}

#[test]
fn the_command_runs_a_file() {
    let cluster = Cluster::with(3, &ENABLED);
    put_texts(&mut cluster.client(0), 30);
    let file = cluster.root().join("words.lua");
    std::fs::write(&file, WORDS).unwrap();
    let run = |prefix: &str| {
        let mut command = kvorum();
        command.args(["script", file.to_str().unwrap(), "--prefix", prefix, "--url", &cluster.node(2).url()]);
        command.output().unwrap()
    };
    let said = run("t/");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let text = String::from_utf8(said.stdout).unwrap();
    assert_eq!(text.lines().count(), 5, "four words and the trailer: {text}");
    assert!(text.starts_with("{\"key\":\"ash\",\"value\":10}\n"), "{text}");
    std::fs::write(&file, "function map() error('no') end").unwrap();
    let said = run("t/");
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("no"), "{}", String::from_utf8_lossy(&said.stderr));
}
