//! Which file imports which: no circle, and crates only downwards.
//!
//! Reads `use` declarations and all other paths, of the program and not of its tests. A file's inner
//! module that only tests compile is left out.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Crates, by how others name them, from the ground up: each may use those before it that are listed for it.
const CRATES: &[(&str, &str, &[&str])] = &[
    ("kvorum_core", "crates/core", &[]),
    ("kvorum_fuzzing", "crates/fuzzing", &[]),
    ("kvorum_script", "crates/script", &[]),
    ("kvorum_auth", "crates/auth", &[]),
    ("kvorum_query", "crates/query", &[]),
    ("kvorum_console", "crates/console", &[]),
    ("kvorum_base", "crates/base", &["kvorum_core"]),
    ("kvorum_storage", "crates/storage", &["kvorum_core", "kvorum_base"]),
    ("kvorum_config", "crates/config", &["kvorum_core", "kvorum_storage"]),
    ("kvorum_engine_rocksdb", "crates/engine-rocksdb", &["kvorum_core", "kvorum_base", "kvorum_storage"]),
    ("kvorum_peer", "crates/peer", &["kvorum_core", "kvorum_auth", "kvorum_base", "kvorum_storage"]),
    ("kvorum_replication", "crates/replication", &["kvorum_core", "kvorum_base", "kvorum_storage", "kvorum_peer"]),
    (
        "kvorum_http",
        "crates/http",
        &["kvorum_core", "kvorum_auth", "kvorum_base", "kvorum_query", "kvorum_storage", "kvorum_replication"],
    ),
    (
        "kvorum_server",
        "crates/server",
        &[
            "kvorum_core",
            "kvorum_auth",
            "kvorum_base",
            "kvorum_storage",
            "kvorum_config",
            "kvorum_console",
            "kvorum_engine_rocksdb",
            "kvorum_peer",
            "kvorum_query",
            "kvorum_replication",
            "kvorum_script",
            "kvorum_http",
        ],
    ),
    ("kvorum_load", "crates/load", &[]),
    ("kvorum_bench_peers", "bench/peers", &[]),
    (
        "kvorum_sim",
        "sim",
        &["kvorum_core", "kvorum_auth", "kvorum_base", "kvorum_storage", "kvorum_peer", "kvorum_replication"],
    ),
    ("kvorum_cli", "crates/cli", &["kvorum_auth", "kvorum_config", "kvorum_console", "kvorum_load"]),
    (
        "kvorum",
        "crates/kvorum",
        &[
            "kvorum_script",
            "kvorum_base",
            "kvorum_storage",
            "kvorum_config",
            "kvorum_engine_rocksdb",
            "kvorum_server",
            "kvorum_cli",
        ],
    ),
];

/// Files that may import each other, in one module each, and why.
const CIRCLES: &[(&str, &str)] = &[];

/// A module: its crate, and its path in it.
type Module = (&'static str, Vec<String>);

fn root() -> PathBuf {
    Path::new("../..").canonicalize().unwrap()
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// All modules of the program, each with its file.
fn modules() -> BTreeMap<Module, String> {
    let root = root();
    let mut modules = BTreeMap::new();
    for (name, dir, _) in CRATES {
        let src = root.join(dir).join("src");
        let mut files = Vec::new();
        files_below(&src, &mut files);
        for file in files {
            let inside = file.strip_prefix(&src).unwrap().with_extension("");
            let mut path: Vec<String> = inside.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if ["mod", "lib", "main"].contains(&path.last().unwrap().as_str()) {
                path.pop();
            }
            let is_test = |part: &String| ["tests", "fuzzing", "interleavings"].contains(&part.as_str());
            if !path.iter().any(is_test) {
                modules.insert((*name, path), file.strip_prefix(&root).unwrap().display().to_string());
            }
        }
    }
    modules
}

/// The file without comments and without what only tests compile.
fn program(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let mut program = String::new();
    while let Some(line) = lines.next() {
        let is_tests = line.starts_with("#[cfg(") && line.contains("test") && !line.contains("not(");
        if is_tests && lines.peek().is_some_and(|next| next.contains("mod ") && next.ends_with('{')) {
            break;
        }
        if is_tests {
            lines.next();
            continue;
        }
        program.push_str(line.split("//").next().unwrap());
        program.push('\n');
    }
    program
}

/// `a::{b, c::{d}}` as `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap().trim().to_owned()];
    };
    let inner = &rest[..rest.rfind('}').unwrap()];
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for letter in inner.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(letter);
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| expand(&format!("{}{part}", prefix.trim()))).collect()
}

/// The paths that a file uses.
fn paths(program: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut lines = program.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let declared =
            line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(")?.split_once(") ").map(|two| two.1));
        if let Some(first) = declared.unwrap_or(line).strip_prefix("use ") {
            let mut tree = first.to_owned();
            while !tree.ends_with(';') {
                tree.push_str(lines.next().expect("a declaration ends"));
            }
            paths.extend(expand(tree.trim_end_matches(';')));
        } else {
            let words = line.split(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':'));
            let is_path = |word: &&str| word.contains("::") && word.starts_with(|first: char| first.is_lowercase());
            paths.extend(words.filter(is_path).map(|word| word.trim_end_matches(':').to_owned()));
        }
    }
    paths
}

/// The module that a path, used in `here`, leads to.
fn target(modules: &BTreeMap<Module, String>, here: &Module, path: &str) -> Option<Module> {
    let mut segments: Vec<&str> = path.split("::").map(str::trim).collect();
    let first = *segments.first()?;
    let (name, mut base) = match first {
        "crate" => (here.0, Vec::new()),
        "self" | "super" => (here.0, here.1.clone()),
        other => match CRATES.iter().find(|(name, _, _)| *name == other) {
            Some((name, _, _)) => (*name, Vec::new()),
            None => (here.0, here.1.clone()),
        },
    };
    while segments.first() == Some(&"super") {
        base.pop();
        segments.remove(0);
    }
    if first == "crate" || first == "self" || CRATES.iter().any(|(name, _, _)| *name == first) {
        segments.remove(0);
    }
    base.extend(segments.iter().map(|segment| (*segment).to_owned()));
    loop {
        let candidate = (name, base);
        if modules.contains_key(&candidate) {
            return Some(candidate);
        }
        base = candidate.1;
        base.pop()?;
    }
}

/// Which file imports which.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let modules = modules();
    let mut graph = BTreeMap::new();
    for (here, file) in &modules {
        let text = program(&std::fs::read_to_string(root().join(file)).unwrap());
        let of_module = |path: &String| {
            let is_local = ["crate", "self", "super"].iter().any(|word| path.starts_with(word));
            let is_crate = CRATES.iter().any(|(name, _, _)| path.starts_with(&format!("{name}::")));
            let child = path.split("::").next().map(|first| {
                let mut child = here.1.clone();
                child.push(first.to_owned());
                modules.contains_key(&(here.0, child))
            });
            (is_local || is_crate || child == Some(true)).then(|| target(&modules, here, path))?
        };
        let targets = paths(&text).iter().filter_map(of_module).map(|module| modules[&module].clone()).collect();
        let mut targets: BTreeSet<String> = targets;
        targets.remove(file);
        graph.insert(file.clone(), targets);
    }
    graph
}

/// The files that can be reached from one, itself only over a circle.
fn reachable(graph: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![from.to_owned()];
    while let Some(file) = next.pop() {
        for other in &graph[&file] {
            if found.insert(other.clone()) {
                next.push(other.clone());
            }
        }
    }
    found
}

#[test]
fn no_files_import_each_other() {
    let graph = imports();
    let reached: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|file| (file, reachable(&graph, file))).collect();
    let mut circles = BTreeSet::new();
    for (file, others) in &reached {
        if others.contains(*file) {
            let circle: BTreeSet<&String> = others.iter().filter(|other| reached[other].contains(*file)).collect();
            if !CIRCLES.iter().any(|(module, _)| circle.iter().all(|member| member.starts_with(module))) {
                circles.insert(circle);
            }
        }
    }
    assert!(circles.is_empty(), "files that import each other: {circles:#?}");
    for (module, _) in CIRCLES {
        let is_one = |file: &&String| file.starts_with(module) && reached[*file].contains(*file);
        assert!(graph.keys().any(|file| is_one(&file)), "{module} is no circle any more");
    }
}

#[test]
fn crates_use_only_those_below_them() {
    for (file, others) in imports() {
        let of = |file: &str| CRATES.iter().find(|(_, dir, _)| file.starts_with(&format!("{dir}/src"))).unwrap();
        let (name, _, below) = of(&file);
        for other in others {
            let (used, _, _) = of(&other);
            assert!(used == name || below.contains(used), "{file} uses {other}");
        }
    }
}

#[test]
fn every_crate_is_in_the_table_above_those_that_it_uses() {
    let listed: BTreeSet<&str> = CRATES.iter().map(|(_, dir, _)| *dir).collect();
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let crates = crates.map(|entry| format!("crates/{}", entry.unwrap().file_name().to_string_lossy()));
    let all: BTreeSet<String> = crates.chain(["sim".to_owned(), "bench/peers".to_owned()]).collect();
    assert!(all.iter().map(String::as_str).eq(listed), "{all:?}");
    for (at, (name, _, used)) in CRATES.iter().enumerate() {
        let is_below = |used: &&str| CRATES[..at].iter().any(|(other, _, _)| other == used);
        assert!(used.iter().all(is_below), "{name}");
    }
}

/// What is built without the engine needs no compiler of C++: not in its tests either.
#[test]
fn crates_below_the_server_build_neither_the_engine_nor_the_allocator() {
    let crates = ["core", "base", "auth", "query", "storage", "peer", "replication", "http", "config", "sim"];
    let packages = crates.iter().flat_map(|name| ["-p".to_owned(), format!("kvorum-{name}")]);
    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap());
    cargo.args(["tree", "--locked", "--offline", "-e", "normal,build,dev", "--prefix", "none", "--format", "{p}"]);
    let output = cargo.args(packages).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("tokio v"), "{}", String::from_utf8_lossy(&output.stderr));
    let engine = text.lines().find(|line| ["rocksdb", "jemalloc"].iter().any(|name| line.contains(name)));
    assert_eq!(engine, None);
}

#[test]
fn what_a_file_imports_is_seen() {
    let text = "use a::{b, c::{d, e as f}};\npub use super::g;\n// use h;\n#[cfg(test)]\nmod tests {\nuse i;\n}\n";
    assert_eq!(paths(&program(text)), ["a::b", "a::c::d", "a::c::e", "super::g"]);
    assert_eq!(paths("fn f() { crate::j::k(1); super::l::<M>(N::o, p::q) }"), ["crate::j::k", "super::l", "p::q"]);
    let graph = imports();
    let edges = |file: &str| graph[file].iter().map(String::as_str).collect::<Vec<_>>();
    assert!(edges("crates/core/src/quorum/write.rs").contains(&"crates/core/src/quorum/mod.rs"));
    assert!(
        edges("crates/load/src/report/text.rs").contains(&"crates/load/src/report/soak.rs"),
        "named where it is called"
    );
    assert!(edges("crates/kvorum/src/serve.rs").iter().any(|file| file.starts_with("crates/server/src/")));
}
