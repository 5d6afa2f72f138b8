//! `scripts/rocksdb`, with a cargo and a compiler that only note what they are called for.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Besides these sources there are `build_version.cc` and two that need flags of their own on aarch64.
const SOURCES: usize = 30;
const UNITS: usize = if cfg!(target_arch = "aarch64") { 3 + 2 } else { 3 };

const CARGO: &str = r#"#!/bin/sh
case "$1" in
metadata) echo "{\"manifest_path\":\"$MACHINE/rust-librocksdb-sys-1/Cargo.toml\"}" ;;
build) for name in jemalloc lz4 zstd; do
    mkdir -p "$MACHINE/$name/include"
    echo "{\"reason\":\"build-script-executed\",\"out_dir\":\"$MACHINE/$name\"}"
done ;;
esac
"#;
const RUSTC: &str = "#!/bin/sh\necho host: this-machine\n";
const COMPILER: &str = r#"#!/bin/sh
[ "$1" != --version ] || { echo compiler 1; exit 0; }
while [ $# -gt 0 ]; do
    case "$1" in -c) unit="$2" ;; -o) object="$2" ;; esac
    shift
done
echo "$unit" >>"$MACHINE/compiled"
[ -z "$BROKEN" ] || { echo "no space left" >&2; exit 1; }
[ -z "$SLOW" ] || sleep 60
cp "$unit" "$object"
"#;

/// A home directory, a crate in a registry, and a PATH.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { root: tempfile::tempdir().unwrap() };
        let sources = machine.path("rust-librocksdb-sys-1");
        fs::create_dir_all(sources.join("rocksdb/include/rocksdb")).unwrap();
        fs::write(sources.join("rocksdb/include/rocksdb/c.h"), "").unwrap();
        let list: String = (0..SOURCES).map(|n| format!("db/source{n}.cc\n")).collect();
        let list = format!("{list}util/build_version.cc\nutil/crc32c.cc\nutil/crc32c_arm64.cc\n");
        fs::write(sources.join("rocksdb_lib_sources.txt"), list).unwrap();
        for (name, text) in [("cargo", CARGO), ("rustc", RUSTC), ("c++", COMPILER)] {
            machine.program(name, text);
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What the script reads of a checkout.
    fn checkout(&self, name: &str) -> PathBuf {
        let checkout = self.path(name);
        for dir in ["scripts", ".cargo"] {
            fs::create_dir_all(checkout.join(dir)).unwrap();
        }
        for file in ["Cargo.toml", "Cargo.lock", "scripts/rocksdb"] {
            fs::copy(Path::new("../..").join(file), checkout.join(file)).unwrap();
        }
        checkout
    }

    fn script(&self, checkout: &Path) -> Command {
        let path = std::env::join_paths(
            std::iter::once(self.path("bin")).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        );
        let mut command = Command::new(checkout.join("scripts/rocksdb"));
        for variable in ["CXX", "AR", "CXXFLAGS", "ROCKSDB_COMPILE", "ROCKSDB_LIB_DIR", "CARGO_BUILD_JOBS"] {
            command.env_remove(variable);
        }
        command.env("PATH", path.unwrap()).env("HOME", self.path("home")).env("MACHINE", self.root.path());
        command.stdin(Stdio::null());
        command
    }

    fn compiled(&self) -> usize {
        fs::read_to_string(self.path("compiled")).unwrap_or_default().lines().count()
    }

    /// All that there is in the cache but for its lock.
    fn libraries(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("home/.cache/kvorum/rocksdb")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| !path.ends_with("lock")).collect()
    }
}

fn ok(output: &Output) {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn config(checkout: &Path) -> Option<String> {
    fs::read_to_string(checkout.join(".cargo/rocksdb.toml")).ok()
}

#[test]
fn checkouts_share_a_library_of_every_source_that_is_compiled_once() {
    let machine = Machine::new();
    let (one, other) = (machine.checkout("one"), machine.checkout("other"));
    let both = [&one, &other].map(|checkout| machine.script(checkout).stdout(Stdio::piped()).spawn().unwrap());
    for child in both {
        ok(&child.wait_with_output().unwrap());
    }
    assert_eq!(machine.compiled(), UNITS, "the second one waits for the first");
    assert!(config(&one).is_some() && config(&one) == config(&other));

    let [library] = &machine.libraries()[..] else { panic!("{:?}", machine.libraries()) };
    assert!(config(&one).unwrap().contains(&format!("ROCKSDB_LIB_DIR = '{}'", library.display())));
    assert!(library.join("include/rocksdb/c.h").exists());
    // Each "object" is the unit's text.
    let archive = text(&fs::read(library.join("librocksdb.a")).unwrap());
    let included = archive.lines().filter(|line| line.starts_with("#include")).count();
    assert_eq!(included, SOURCES + 3);
    assert!(archive.contains("\"build_version.cc\"") && !archive.contains("util/build_version.cc"));

    ok(&machine.script(&one).output().unwrap());
    assert_eq!(machine.compiled(), UNITS);
}

#[test]
fn a_changed_flag_makes_a_library_beside_the_old_one() {
    let machine = Machine::new();
    let checkout = machine.checkout("checkout");
    ok(&machine.script(&checkout).output().unwrap());
    let before = config(&checkout);
    ok(&machine.script(&checkout).env("CXXFLAGS", "-g").output().unwrap());
    assert_eq!((machine.libraries().len(), machine.compiled()), (2, 2 * UNITS));
    assert_ne!(config(&checkout), before);
    ok(&machine.script(&checkout).output().unwrap());
    assert_eq!((config(&checkout), machine.compiled()), (before, 2 * UNITS));
}

#[test]
fn what_is_killed_or_fails_leaves_no_library() {
    let machine = Machine::new();
    let checkout = machine.checkout("checkout");
    let mut child = machine.script(&checkout).env("SLOW", "1").process_group(0).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while machine.compiled() == 0 {
        assert!(Instant::now() < deadline, "nothing is compiled");
        std::thread::sleep(Duration::from_millis(10));
    }
    ok(&Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).output().unwrap());
    child.wait().unwrap();
    assert!(machine.libraries().iter().all(|path| !path.join("FLAGS").exists()) && config(&checkout).is_none());

    let failed = machine.script(&checkout).env("BROKEN", "1").output().unwrap();
    assert!(!failed.status.success() && text(&failed.stderr).contains("RocksDB did not compile"));
    assert!(machine.libraries().is_empty() && config(&checkout).is_none());

    ok(&machine.script(&checkout).output().unwrap());
    assert_eq!(machine.libraries().len(), 1);
}

#[test]
fn what_is_missing_is_named() {
    let machine = Machine::new();
    let checkout = machine.checkout("checkout");
    let failed = machine.script(&checkout).env("CXX", "no-such-compiler").output().unwrap();
    assert!(!failed.status.success() && text(&failed.stderr).contains("build-essential"), "{}", text(&failed.stderr));

    let lock = fs::read_to_string(checkout.join("Cargo.lock")).unwrap();
    let (before, after) = lock.split_once("name = \"rust-librocksdb-sys\"\nversion = \"").unwrap();
    let updated = format!("{before}name = \"rust-librocksdb-sys\"\nversion = \"9.{after}");
    fs::write(checkout.join("Cargo.lock"), updated).unwrap();
    let failed = machine.script(&checkout).output().unwrap();
    assert!(!failed.status.success() && text(&failed.stderr).contains("build.rs"), "{}", text(&failed.stderr));
    assert_eq!(machine.compiled(), 0);
}

#[test]
fn a_library_of_ones_own_is_left_alone() {
    let machine = Machine::new();
    let checkout = machine.checkout("checkout");
    for variable in ["ROCKSDB_LIB_DIR", "ROCKSDB_COMPILE"] {
        ok(&machine.script(&checkout).env(variable, "1").output().unwrap());
    }
    assert_eq!((machine.compiled(), config(&checkout)), (0, None));
}
