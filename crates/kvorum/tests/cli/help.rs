//! Help that teaches, usage errors, and the documents made from the same description.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support::{kvorum, run};

const COMMANDS: [&str; 16] = [
    "serve",
    "dev",
    "put",
    "get",
    "delete",
    "range",
    "status",
    "top",
    "where",
    "slow",
    "hot",
    "repair",
    "bench",
    "config",
    "completions",
    "man",
];
/// Those that only hold others.
const GROUPS: [&str; 2] = ["bench", "config"];
const BENCH_COMMANDS: [&str; 5] = ["run", "fill", "knee", "soak", "compare"];

#[test]
fn help_names_the_commands_the_exit_codes_and_a_way_to_start() {
    let ended = run(&mut kvorum(&["--help"]));
    assert_eq!(ended.code, 0);
    for part in COMMANDS.iter().chain(&["kvorum dev", "Exit codes: 0 done, 1 not found, 2 usage"]) {
        assert!(ended.stdout.contains(part), "{part}");
    }
}

#[test]
fn every_command_has_an_example() {
    let single = COMMANDS.iter().filter(|command| !GROUPS.contains(command)).map(|command| vec![*command]);
    for command in single.chain(BENCH_COMMANDS.iter().map(|command| vec!["bench", *command])) {
        let ended = run(kvorum(&command).arg("--help"));
        assert!(ended.code == 0 && ended.stdout.contains("Example"), "{command:?}");
        assert!(ended.stdout.contains(&format!("kvorum {}", command.join(" "))), "{command:?}");
    }
}

#[test]
fn serve_lists_all_settings_with_their_defaults() {
    let help = run(&mut kvorum(&["serve", "--help"])).stdout;
    // Long lines are wrapped.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for setting in kvorum_config::SETTINGS {
        assert!(help.contains(&format!(" {} = ", setting.name)) && help.contains(setting.doc), "{}", setting.name);
    }
    assert!(!help.contains("stdin-eof"), "what is for `dev` alone is hidden");
}

#[test]
fn usage_errors_are_exit_code_2() {
    for args in [&["fetch"][..], &["get"], &["get", "k", "--ack", "many"], &["get", "k", "--url", "ftp://a"], &[]] {
        assert_eq!(run(&mut kvorum(args)).code, 2, "{args:?}");
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = run(&mut kvorum(&["completions", shell]));
        assert!(ended.code == 0 && COMMANDS.iter().all(|command| ended.stdout.contains(command)), "{shell}");
    }
}

#[test]
fn there_is_a_man_page_for_every_command() {
    let ended = run(&mut kvorum(&["man"]));
    assert!(ended.code == 0 && ended.stdout.contains(".TH kvorum 1") && ended.stdout.contains("Exit codes"));
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(kvorum(&["man", "--dir"]).arg(dir.path())).code, 0);
    for command in COMMANDS {
        let page = std::fs::read_to_string(dir.path().join(format!("kvorum-{command}.1"))).unwrap();
        assert!(page.contains(&format!("kvorum\\-{command}")), "{command}");
    }
}
