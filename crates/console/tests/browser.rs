//! The pages in a real browser, driven by node. Skips, loudly, where Chromium, node or npm is not installed.
//!
//! The modules of npm are pinned by the lockfile and live outside the tree, in `~/.cache/kvorum/browser`, in a directory
//! that is named by the lockfile's digest. `RECORD=1` keeps the pictures of the pages as they are now.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const PACKAGE: &str = "tests/browser";

fn answers(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// What is missing of what these tests need.
fn missing() -> Option<&'static str> {
    let chromium = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    if !chromium.iter().any(|path| Path::new(path).exists()) {
        return Some("chromium");
    }
    ["node", "npm"].into_iter().find(|program| !answers(program))
}

/// Where the modules of npm are; installed by the first that asks.
fn modules() -> PathBuf {
    static MODULES: OnceLock<PathBuf> = OnceLock::new();
    MODULES.get_or_init(install).clone()
}

fn install() -> PathBuf {
    let lockfile = std::fs::read(Path::new(PACKAGE).join("package-lock.json")).unwrap();
    let home = std::env::var_os("HOME").expect("a home directory for the cache");
    let cache = Path::new(&home).join(".cache/kvorum/browser");
    let dir = cache.join(format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&lockfile)));
    let modules = dir.join("node_modules");
    if modules.is_dir() {
        return modules;
    }
    // Installed apart and then moved, so that another process never finds half of it.
    std::fs::create_dir_all(&cache).unwrap();
    let apart = tempfile::tempdir_in(&cache).unwrap();
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(Path::new(PACKAGE).join(name), apart.path().join(name)).unwrap();
    }
    let arguments = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
    let installed = Command::new("npm").args(arguments).current_dir(apart.path()).output().unwrap();
    assert!(installed.status.success(), "npm ci: {}", String::from_utf8_lossy(&installed.stderr));
    if std::fs::rename(apart.path(), &dir).is_err() {
        assert!(modules.is_dir(), "{} cannot be made", dir.display());
    }
    modules
}

/// Runs a file of tests, and shows what they measured.
fn run(file: &str) {
    if let Some(program) = missing() {
        let mut stderr = std::io::stderr();
        return writeln!(stderr, "SKIPPED: {file} needs {program}; scripts/deps installs it").unwrap();
    }
    let output = Command::new("node")
        .args(["--test", "--test-reporter=tap", file])
        .current_dir(PACKAGE)
        .env("CONSOLE_TEST_MODULES", modules())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{text}");
}

#[test]
fn files_of_the_pages_keep_their_types_and_sizes() {
    run("rules.test.mjs");
}

#[test]
fn what_the_pages_say_follows_from_what_nodes_say() {
    run("pure.test.mjs");
}

#[test]
fn pages_look_as_they_did_and_everybody_can_use_them() {
    run("pages.test.mjs");
}

#[test]
fn a_page_outlives_its_stream_and_does_not_grow() {
    run("time.test.mjs");
}
