//! Tells the binary which commit it is built of: reports name that, wherever they are made.

use std::path::Path;
use std::process::{Command, Stdio};

/// What decides what the binary does, and where each new commit is noted; from this package's directory.
const WATCHED: [&str; 3] = ["../../crates", "../../Cargo.lock", "../../.git/logs/HEAD"];

fn main() {
    // What is not there would have this run at each build.
    for path in WATCHED.iter().filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rustc-env=KVORUM_COMMIT={}", commit().unwrap_or_else(|| "unknown".to_owned()));
}

fn commit() -> Option<String> {
    // In another project's repository, this source is not what its commits are of.
    if git(&["rev-parse", "--show-prefix"])? != "crates/kvorum/" {
        return None;
    }
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no", "--", ":/crates", ":/Cargo.lock"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit} and changes") })
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
