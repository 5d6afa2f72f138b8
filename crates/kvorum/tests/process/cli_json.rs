//! `-o json` of every command, against real nodes: what docs/reference/output-as-json.md promises, and no other member.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};

use clap::CommandFactory;
use kvorum_cli::args::Cli;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::cluster::free_port;
use crate::support::secure::{ROLES, id_of, private, said};
use crate::support::{Cluster, kvorum};

/// Of a section: each member, and whether it may be absent; and whether there may be others.
#[derive(Default)]
struct Promise {
    members: BTreeMap<String, bool>,
    is_open: bool,
}

/// The page's sections by command.
fn promises() -> BTreeMap<String, Promise> {
    let page = std::fs::read_to_string("../../docs/reference/output-as-json.md").unwrap();
    let mut promises = BTreeMap::new();
    for section in page.split("\n## ").skip(1) {
        let (heading, text) = section.split_once('\n').unwrap();
        for command in heading.split(", ").map(|name| name.trim_matches('`')) {
            let mut promise = Promise::default();
            // A second table is of what is inside of a member.
            let table =
                text.lines().skip_while(|line| !line.starts_with("| ")).take_while(|line| line.starts_with('|'));
            for row in table.filter_map(|line| line.strip_prefix("| ")).skip(1) {
                for cell in row.split(" | ").next().unwrap().split(", ") {
                    if cell == "all others" {
                        promise.is_open = true;
                        continue;
                    }
                    let name = cell.trim_end_matches(" (optional)").trim_matches('`').to_owned();
                    promise.members.insert(name, cell.ends_with(" (optional)"));
                }
            }
            promises.insert(command.to_owned(), promise);
        }
    }
    promises
}

/// Runs commands, and holds what they print against the page.
struct Checker {
    promises: BTreeMap<String, Promise>,
    seen: Vec<String>,
}

impl Checker {
    /// The objects that a command of this section printed.
    #[track_caller]
    fn run(&mut self, section: &str, args: &[&str], input: &str) -> Vec<Value> {
        let output = output(args, input);
        assert!(output.status.success(), "{args:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!objects.is_empty(), "{args:?} says nothing");
        let promise = self.promises.get(section).unwrap_or_else(|| panic!("`{section}` is not on the page"));
        for object in objects.iter().map(|object| object.as_object().unwrap()) {
            if section == "script" && object.contains_key("complete") {
                continue;
            }
            let has = |name: &str| object.contains_key(name) || object.contains_key(&format!("{name}_base64"));
            for name in promise.members.iter().filter(|(_, is_optional)| !**is_optional).map(|(name, _)| name) {
                assert!(has(name), "`{name}` of `{section}` is missing in {object:?}");
            }
            for name in object.keys().map(|name| name.trim_end_matches("_base64")) {
                let is_known = promise.is_open || promise.members.contains_key(name);
                assert!(is_known, "`{name}` of `{section}` is not on the page");
            }
        }
        self.seen.push(section.to_owned());
        objects
    }
}

fn output(args: &[&str], input: &str) -> Output {
    let mut command = kvorum();
    command.args(args).args(["-o", "json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that does not read it is gone.
    let _gone = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Commands of one node or any, with their input.
fn ask_all(checker: &mut Checker, urls: &str, one_url: &str) {
    let any = |args: &[&'static str]| [args, &["--url"]].concat();
    let mut run = |section: &str, args: &[&'static str], input: &str| {
        checker.run(section, &[&any(args)[..], &[urls]].concat(), input)
    };
    let put = run("put", &["put", "j/text", "a\tb", "--trace", "--ttl", "1h"], "");
    assert_eq!((put[0]["key"].as_str(), put[0]["replicas"].as_array().unwrap().len()), (Some("j/text"), 3));
    let outcomes = put[0]["replicas"].as_array().unwrap().iter().map(|replica| &replica["outcome"]);
    assert!(outcomes.filter(|outcome| *outcome == "accepted").count() >= 2, "{put:?}");
    run("put", &["put", "j/quote\"\n", "{\"n\":1}"], "");
    let got = run("get", &["get", "j/text", "--trace"], "");
    assert_eq!((&got[0]["value"], &got[0]["etag"]), (&Value::from("a\tb"), &put[0]["etag"]));
    assert_eq!(got[0]["expires_ms"], put[0]["expires_ms"]);
    run("delete", &["delete", "j/gone"], "");
    assert_eq!(run("scan", &["scan", "j/"], "").len(), 2);
    let operations = "{\"op\":\"get\",\"key\":\"j/text\"}\n{\"op\":\"get\",\"key\":\"none\"}\n\
                      {\"op\":\"put\",\"key_base64\":\"/w==\",\"value\":\"v\"}\n";
    let batch = run("batch", &["batch", "-"], operations);
    assert_eq!(batch.iter().map(|answer| answer["status"].as_u64().unwrap()).collect::<Vec<_>>(), [200, 404, 201]);
    run("query", &["query", "-"], r#"{"prefix":"j/","select":{"count":{}}}"#);
    run("script", &["script", "-", "--prefix", "j/"], "function map(key, value, meta) emit(key, 1) end");
    let status = run("status", &["status"], "");
    assert_eq!(status[0]["nodes"].as_array().unwrap().len(), 3);
    let where_is = run("where", &["where", "j/text"], "");
    assert_eq!(where_is[0]["replicas"][0], put[0]["replicas"][0]["node"], "{where_is:?}");
    let slow = run("slow", &["slow"], "");
    assert!(slow.iter().any(|one| one["status"] == 504 && one["node"] == one_url), "{slow:?}");
    run("hot", &["hot"], "");
    let top = run("top", &["top", "--once"], "");
    assert_eq!(top[0]["nodes"].as_array().unwrap().len(), 3);
    run("repair", &["repair"], "");
    run("repair --wait", &["repair", "--wait"], "");
    checker.run("scrub", &["scrub", "--url", one_url], "");
    checker.run("range", &["range", "j/", "--url", one_url], "");
}

/// Commands that only look at files.
fn look_at_files(checker: &mut Checker, root: &std::path::Path) {
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let (keys, secret) = (path("keys.toml"), path("secret"));
    private(std::path::Path::new(&keys), ROLES);
    let made = checker.run("key new", &["key", "new", "ann", "--role", "app", "--file", &keys], "");
    let id = id_of(made[0]["key"].as_str().unwrap()).to_owned();
    checker.run("key rotate", &["key", "rotate", "ann", "--overlap", "1h", "--file", &keys], "");
    let list = checker.run("key list", &["key", "list", "--file", &keys], "");
    assert!(list.len() == 2 && list[0]["not_after"].is_string() && list[1]["not_after"].is_null(), "{list:?}");
    checker.run("auth check", &["auth", "check", &keys], "");
    let explain = ["auth", "explain", &keys, "--key", &id, "--method", "PUT", "--id", "app/7"];
    assert_eq!(checker.run("auth explain", &explain, "")[0]["allowed"], true);
    checker.run("key revoke", &["key", "revoke", &id, "--file", &keys], "");
    checker.run("secret new", &["secret", "new", &secret], "");
    let audit = path("audit");
    std::fs::write(&audit, "").unwrap();
    checker.run("audit verify", &["audit", "verify", &audit], "");
    let print = checker.run("config print", &["config", "print", "--listen", "127.0.0.1:7001"], "");
    assert_eq!(print.iter().find(|setting| setting["name"] == "listen").unwrap()["value"], "127.0.0.1:7001");
    let config = path("kvorum.toml");
    std::fs::write(&config, "listen = \"127.0.0.1:7001\"\n").unwrap();
    checker.run("config check", &["config", "check", &config], "");
}

/// Orders to a `kvorum dev` with one node.
fn order_all(checker: &mut Checker, data_dir: &str) {
    let mut dev = kvorum();
    dev.args(["dev", "--nodes", "1", "--base-port", &free_port().to_string(), "--data-dir", data_dir]);
    let mut dev = dev.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(dev.stdout.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line.starts_with("Ctrl-C")), "it is ready");
    let orders = [["slow", "1", "5"], ["skew", "1", "1"]].map(Vec::from).into_iter();
    let orders = orders.chain(["pause", "resume", "kill", "start"].map(|order| vec![order, "1"]));
    for order in orders.chain([vec!["status"]]) {
        let args = [&["dev"], &order[..], &["--data-dir", data_dir]].concat();
        let answer = checker.run(&format!("dev {}", order[0]), &args, "");
        assert_eq!(answer[0]["nodes"][0]["number"], 1);
    }
    kill_process(Pid::from_child(&dev), Signal::TERM).unwrap();
    assert!(dev.wait().unwrap().success());
}

#[test]
fn every_command_prints_the_members_that_the_page_has() {
    let mut cluster = Cluster::prepare(3, &[("KVORUM_SCRIPTS_ENABLED", "true"), ("KVORUM_COORDINATOR_DEADLINE", "1s")]);
    let admin = format!("127.0.0.1:{}", free_port());
    cluster.set_variable(0, "KVORUM_ADMIN_LISTEN", &admin);
    cluster.spawn_all();
    cluster.wait_whole();
    let mut checker = Checker { promises: promises(), seen: Vec::new() };
    let urls: Vec<String> = (0..3).map(|index| cluster.node(index).url()).collect();
    cluster.pause(2);
    let lacking = output(&["put", "slow", "v", "--ack", "3", "--url", &urls[0]], "");
    assert_eq!(lacking.status.code(), Some(3), "{lacking:?}");
    cluster.resume(2);
    cluster.wait_whole();
    ask_all(&mut checker, &urls.join(","), &urls[0]);
    look_at_files(&mut checker, cluster.root());
    order_all(&mut checker, cluster.root().join("dev").to_str().unwrap());
    let (data, dir) = (cluster.node(0).data_dir.clone(), cluster.root().join("backup"));
    let [data, dir] = [&data, &dir].map(|path| path.to_str().unwrap());
    checker.run("backup", &["backup", dir, "--data-dir", data, "--url", &urls[0]], "");
    let out = cluster.root().join("profile");
    let profile = ["profile", "--url", &admin, "--kind", "alloc", "--seconds", "1", "--out", out.to_str().unwrap()];
    checker.run("profile", &profile, "");
    let serve = cluster.serve(0);
    let serve: Vec<&str> = serve.get_args().skip(1).map(|argument| argument.to_str().unwrap()).collect();
    cluster.kill(0);
    std::fs::remove_dir_all(data).unwrap();
    checker.run("restore", &[&["restore", dir], &serve[..]].concat(), "");
    let missing: Vec<&String> = checker.promises.keys().filter(|section| !checker.seen.contains(section)).collect();
    assert!(missing.is_empty(), "on the page, and not tried here: {missing:?}");
    assert_eq!(commands_without(&checker), ["serve", "console", "bench", "completions", "man"]);
}

/// Commands that are not on the page.
fn commands_without(checker: &Checker) -> Vec<String> {
    let mut absent = Vec::new();
    for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_name();
        let mut inner = command.get_subcommands().map(|inner| format!("{name} {}", inner.get_name())).peekable();
        let is_there = |of: String| checker.seen.contains(&of);
        let are_all_there = inner.peek().is_some() && inner.all(is_there);
        if !are_all_there && !is_there(name.to_owned()) {
            absent.push(name.to_owned());
        }
    }
    absent
}

#[test]
fn a_refusal_is_the_nodes_problem_on_stderr_and_in_text_a_table_of_replicas() {
    let mut cluster = Cluster::start(3);
    let url = cluster.node(0).url();
    said(&["put", "k", "v", "--url", &url]);
    let problem = |output: &Output| -> Value { serde_json::from_slice(&output.stderr).unwrap() };
    let absent = output(&["get", "absent", "--trace", "--url", &url], "");
    assert_eq!((absent.status.code(), absent.stdout.len()), (Some(1), 0));
    assert_eq!(problem(&absent)["replicas"].as_array().unwrap().len(), 3, "{absent:?}");
    cluster.kill(1);
    cluster.kill(2);
    let lacking = output(&["put", "k", "v", "--url", &url], "");
    assert_eq!((lacking.status.code(), lacking.stdout.len()), (Some(3), 0));
    assert_eq!(problem(&lacking)["replicas"].as_array().unwrap().len(), 3, "{lacking:?}");
    let text = kvorum().args(["put", "k", "v", "--url", &url]).output().unwrap();
    let text = String::from_utf8(text.stderr).unwrap();
    assert!(text.contains("outcome") && text.contains("time, ms") && !text.contains('{'), "{text}");
    for index in 0..3 {
        let node = cluster.node(index).url();
        assert!(text.lines().any(|line| line.trim().starts_with(&node)), "{node} has no line: {text}");
    }
}
