//! Puts into the binary what it is built of: reports name its commit, and `--version --verbose` also names the flags
//! and RocksDB's version.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What decides what the binary does, and where each new commit is noted; from this package's directory.
const WATCHED: [&str; 3] = ["../../crates", "../../Cargo.lock", "../../.git/logs/HEAD"];

fn main() {
    // What is not there would have this run at each build.
    for path in WATCHED.iter().filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
    let commit = commit().unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=KVORUM_COMMIT={commit}");

    let out = PathBuf::from(variable("OUT_DIR"));
    let lines = [
        ("commit", commit),
        ("target", variable("TARGET")),
        ("profile", profile(&out)),
        ("compiler", output(&variable("RUSTC"), &["--version"]).unwrap_or_default()),
        ("flags", variable("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " ")),
        ("rocksdb", rocksdb()),
    ];
    let lines: String = lines.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    std::fs::write(out.join("version.txt"), lines).expect("cargo made the directory for it");
}

fn commit() -> Option<String> {
    // In another project's repository, this source is not what its commits are of.
    if output("git", &["rev-parse", "--show-prefix"])? != "crates/kvorum/" {
        return None;
    }
    let commit = output("git", &["rev-parse", "--short=10", "HEAD"])?;
    let changes = output("git", &["status", "--porcelain", "--untracked-files=no", "--", ":/crates", ":/Cargo.lock"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit} and changes") })
}

/// The profile's directory in the target directory: cargo gives a build script only what a profile inherits from.
fn profile(out: &Path) -> String {
    let dir = out.ancestors().nth(3).and_then(Path::file_name).unwrap_or_default();
    format!("{}, opt-level {}", dir.to_string_lossy(), variable("OPT_LEVEL"))
}

/// The version in the headers of the library that is linked, and, if it is this machine's shared one, that one's name.
fn rocksdb() -> String {
    let include = PathBuf::from(variable("DEP_ROCKSDB_INCLUDE"));
    let header = std::fs::read_to_string(include.join("rocksdb/version.h")).unwrap_or_default();
    let number = |name: &str| {
        let rest = header.lines().find_map(|line| line.strip_prefix("#define ROCKSDB_")?.strip_prefix(name));
        rest.map_or("?", str::trim).to_owned()
    };
    let version = format!("{}.{}.{}", number("MAJOR"), number("MINOR"), number("PATCH"));
    match include.parent().filter(|library| library.join("FLAGS").exists()).and_then(Path::file_name) {
        Some(library) => format!("{version}, library {}", library.to_string_lossy()),
        None => version,
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
