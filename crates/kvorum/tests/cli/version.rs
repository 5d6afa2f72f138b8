//! What the binary shows that it is built of.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use crate::support::{kvorum, run};

/// The value of a line `NAME: VALUE`.
fn value<'a>(output: &'a str, name: &str) -> &'a str {
    let line = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in {output}"))
}

#[test]
fn the_version_is_one_line() {
    for flag in ["--version", "-V"] {
        let ended = run(&mut kvorum(&[flag]));
        assert_eq!((ended.code, ended.stdout), (0, format!("kvorum {}\n", env!("CARGO_PKG_VERSION"))));
    }
}

#[test]
fn a_verbose_version_names_commit_flags_allocator_and_rocksdb() {
    let ended = run(&mut kvorum(&["--version", "--verbose"]));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.starts_with(&format!("kvorum {}\n", env!("CARGO_PKG_VERSION"))), "{}", ended.stdout);
    assert!(!value(&ended.stdout, "commit").is_empty());
    assert!(value(&ended.stdout, "flags").contains("force-frame-pointers"));
    assert!(value(&ended.stdout, "compiler").starts_with("rustc "));
    assert!(value(&ended.stdout, "allocator").starts_with("jemalloc 5."));

    // The profile's directory is where the binary is.
    let profile = Path::new(env!("CARGO_BIN_EXE_kvorum")).parent().and_then(Path::file_name).unwrap();
    assert!(value(&ended.stdout, "profile").starts_with(profile.to_str().unwrap()));

    // The crate's version ends with that of the RocksDB that it is for.
    let lock = std::fs::read_to_string("../../Cargo.lock").unwrap();
    let (_, after) = lock.split_once("name = \"rust-librocksdb-sys\"\nversion = \"").unwrap();
    let (_, rocksdb) = after.split('"').next().unwrap().split_once('+').unwrap();
    assert!(value(&ended.stdout, "rocksdb").starts_with(rocksdb), "not {rocksdb}: {}", ended.stdout);

    assert_eq!(run(&mut kvorum(&["--verbose", "--version"])).stdout, ended.stdout);
    for misuse in [&["--verbose"][..], &["--version", "status"]] {
        assert_eq!(run(&mut kvorum(misuse)).code, 2, "{misuse:?}");
    }
}
