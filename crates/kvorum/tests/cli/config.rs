//! `kvorum config`, and how `serve` refuses bad settings.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{kvorum, run};

#[test]
fn print_shows_each_value_with_where_it_came_from() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kvorum.toml");
    std::fs::write(&file, "durability = \"os\"\n[limits]\nvalue_bytes_max = \"1MiB\"\n").unwrap();
    let mut command = kvorum(&["config", "print", "--listen", "127.0.0.1:7000", "--config"]);
    let ended = run(command.arg(&file).env("KVORUM_LIMITS_VALUE_BYTES_MAX", "2MiB"));
    assert_eq!(ended.code, 0, "{ended:?}");
    let has = |line: &str| assert!(ended.stdout.lines().any(|printed| printed == line), "{line}\n{}", ended.stdout);
    has("listen = \"127.0.0.1:7000\"  # flag --listen");
    has("advertise = \"http://127.0.0.1:7000\"  # default");
    has("limits.value_bytes_max = \"2MiB\"  # env KVORUM_LIMITS_VALUE_BYTES_MAX");
    has(&format!("durability = \"os\"  # file {}", file.display()));
    has("memory_bytes = \"512MiB\"  # default");
}

#[test]
fn what_print_prints_is_a_file_that_check_accepts() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kvorum.toml");
    std::fs::write(&file, run(&mut kvorum(&["config", "print"])).stdout).unwrap();
    let ended = run(kvorum(&["config", "check"]).arg(&file));
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
}

#[test]
fn check_names_every_problem_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kvorum.toml");
    std::fs::write(&file, "lisen = \"a:1\"\nmemory_bytes = \"1MiB\"\n").unwrap();
    let ended = run(kvorum(&["config", "check"]).arg(&file));
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("unknown setting `lisen`") && ended.stderr.contains("did you mean `listen`?"));
    assert!(ended.stderr.contains("memory_bytes = \"1MiB\"") && ended.stderr.contains("from 64MiB"));
    assert_eq!(run(&mut kvorum(&["config", "check", "/does/not/exist"])).code, 2);
}

#[test]
fn serve_refuses_a_cluster_without_itself_and_says_what_to_do() {
    let ended = run(&mut kvorum(&["serve", "--listen", "127.0.0.1:1", "--cluster", "http://127.0.0.1:2"]));
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("not in the cluster http://127.0.0.1:2") && ended.stderr.contains("`advertise`"));
}

#[test]
fn serve_refuses_a_variable_that_is_no_setting() {
    let ended = run(kvorum(&["serve"]).env("KVORUM_DURABLITY", "os"));
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("did you mean `KVORUM_DURABILITY`?"), "{}", ended.stderr);
}

#[test]
fn the_file_may_be_named_by_a_variable() {
    let ended = run(kvorum(&["config", "print"]).env("KVORUM_CONFIG", "/does/not/exist"));
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("/does/not/exist"));
}
