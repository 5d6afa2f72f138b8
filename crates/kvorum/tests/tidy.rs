//! The style that a reader relies on, enforced.
//!
//! Each rule is a function from a file to complaints. It is run over the whole workspace, and over a
//! snippet that breaks it, so that no rule can go blind. Formatting is not checked here (`cargo fmt`
//! does), but it is relied on: a function ends at the first closing brace as deep as its `fn`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Of all files that git keeps but sources, together. A clone is to be quick, and a file that can be made again is not
/// kept. Over half a megabyte is pictures of the console's pages, which its tests compare.
const TREE_BYTES_MAX: u64 = 2_000_000;
/// What sources end in.
const SOURCES: &[&str] = &[".rs", ".js", ".mjs", ".css"];
/// Of a drawing in a document.
const DRAWING_BYTES_MAX: u64 = 100_000;

struct Source {
    /// From the workspace's root.
    path: String,
    text: String,
}

type Rule = fn(&Source) -> Vec<String>;

fn root() -> PathBuf {
    Path::new("../..").canonicalize().unwrap()
}

/// All files of the workspace with one of these endings, but for this one, which quotes what it forbids.
fn sources(endings: &[&str]) -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    let mut dirs = vec![root.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !["target", "data", ".git"].contains(&name.as_str()) {
                dirs.push(path);
            } else if path.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
                if name == "tidy.rs" {
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                found.push(Source { path: path.strip_prefix(&root).unwrap().display().to_string(), text });
            }
        }
    }
    assert!(!found.is_empty(), "no {endings:?} in {}", root.display());
    found
}

fn hold(endings: &[&str], rule: Rule) {
    let complaints: Vec<String> = sources(endings).iter().flat_map(rule).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Whether `rule` complains about this text at this path.
fn refuses(rule: Rule, path: &str, text: &str) -> bool {
    !rule(&Source { path: path.into(), text: text.into() }).is_empty()
}

impl Source {
    /// Whether all of the file is tests.
    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// The number of lines before the tests inside the file. A declaration `mod tests;` is not one.
    fn lines_before_tests(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        let tests = lines.windows(2).position(|two| two[0] == "#[cfg(test)]" && two[1].ends_with('{'));
        tests.unwrap_or(lines.len())
    }

    /// Lines of code, numbered from 1, without their comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines().map(|line| line.split("//").next().unwrap()))
    }

    fn complain(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}

struct Function<'a> {
    name: &'a str,
    first: usize,
    last: usize,
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The name, if a function begins in this line.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    while let Some((word, after)) = rest.split_once(' ') {
        match word {
            "fn" => return after.split(['(', '<']).next(),
            "const" | "async" | "unsafe" | "extern" | "\"C\"" => rest = after,
            word if word.starts_with("pub") => rest = after,
            _ => return None,
        }
    }
    None
}

/// All functions, methods and nested ones included. Lines are numbered from 1.
fn functions<'a>(text: &'a str) -> Vec<Function<'a>> {
    let lines: Vec<&'a str> = text.lines().collect();
    let begin = |(index, line): (usize, &&'a str)| {
        let name = function_name(line)?;
        let ends = |candidate: &str| {
            let same = indentation(candidate) == indentation(line) && !candidate.trim().is_empty();
            same && (candidate.trim_start().starts_with('}') || candidate.ends_with(['}', ';']))
        };
        let length = lines[index..].iter().position(|candidate| ends(candidate))?;
        Some(Function { name, first: index + 1, last: index + 1 + length })
    };
    lines.iter().enumerate().filter_map(begin).collect()
}

fn long_files(source: &Source) -> Vec<String> {
    let lines = source.lines_before_tests();
    let long = source.path.contains("/src/") && !source.is_test() && lines >= FILE_LINES_MAX;
    long.then(|| source.complain(lines, "a file stays under 600 lines before its tests")).into_iter().collect()
}

fn long_functions(source: &Source) -> Vec<String> {
    let functions = functions(&source.text);
    let long = functions.iter().filter(|function| function.last - function.first + 1 > FUNCTION_LINES_MAX);
    long.map(|function| {
        let lines = function.last - function.first + 1;
        source.complain(function.first, &format!("`{}` has {lines} lines, 70 are allowed", function.name))
    })
    .collect()
}

/// Complaints for each line of code with one of the words, where `applies`.
fn words(source: &Source, applies: bool, words: &[&str], why: &str) -> Vec<String> {
    let bad = |line: &str| words.iter().find(|word| line.contains(**word)).copied();
    let lines = source.code().filter(|_| applies);
    lines.filter_map(|(number, line)| Some(source.complain(number, &format!("`{}`: {why}", bad(line)?)))).collect()
}

fn unfinished(source: &Source) -> Vec<String> {
    let mut complaints = words(source, true, &["todo!", "unimplemented!", "dbg!"], "not in finished code");
    let marks = source.text.lines().enumerate().filter(|(_, line)| line.contains("FIXME") || line.contains("TODO"));
    complaints.extend(marks.map(|(index, _)| source.complain(index + 1, "do it, or open an issue")));
    complaints
}

/// Checkouts share a target directory, and cargo does not compile again what differs only in where it lay.
fn paths_of_the_checkout(source: &Source) -> Vec<String> {
    words(source, true, &["env!(\"CARGO_MANIFEST_DIR\")"], "tests run in their package's directory")
}

/// In the program; a test's own helpers end with the test.
fn unbounded_channels(source: &Source) -> Vec<String> {
    let bad = |line: &str| {
        let typed = line.contains("channel::<") && line.contains(">()") && !line.contains("oneshot");
        typed || ["unbounded_channel", "unbounded()", "mpsc::channel()"].iter().any(|call| line.contains(call))
    };
    let program = if source.is_test() { 0 } else { source.lines_before_tests() };
    let lines = source.code().filter(|(number, line)| *number <= program && bad(line));
    lines.map(|(number, _)| source.complain(number, "every queue has a bound")).collect()
}

/// Tests wait for a condition with a deadline: a pause is a part of a loop, never a step of its own.
fn sleeps_in_tests(source: &Source) -> Vec<String> {
    let tests_from = if source.is_test() { 0 } else { source.lines_before_tests() };
    let lines: Vec<&str> = source.text.lines().collect();
    let in_a_loop = |number: usize| {
        let mut depth = indentation(lines[number - 1]);
        for line in lines[..number].iter().rev().filter(|line| !line.trim().is_empty()) {
            if indentation(line) < depth {
                depth = indentation(line);
                let code = line.trim_start();
                if function_name(code).is_some() {
                    return false;
                }
                if code.starts_with("while ") || code.starts_with("for ") || code.contains("loop {") {
                    return true;
                }
            }
        }
        false
    };
    let sleeps = source.code().filter(|(number, line)| {
        *number > tests_from && (line.contains("sleep(") || line.contains("park_timeout(")) && !in_a_loop(*number)
    });
    sleeps.map(|(number, _)| source.complain(number, "a test waits for a condition, with a deadline")).collect()
}

fn impure_core(source: &Source) -> Vec<String> {
    let core = source.path.starts_with("crates/core/src/");
    let impure = [
        "Instant",
        "SystemTime",
        "std::fs",
        "std::net",
        "std::thread",
        "std::env",
        "rand::",
        "getrandom",
        "tokio",
        "tracing",
        "println!",
        "async fn",
    ];
    words(source, core, &impure, "core is pure: time and chance are arguments")
}

/// Of the scripts: cargo must not choose other versions of dependencies than those that were looked at.
fn unlocked_cargo(source: &Source) -> Vec<String> {
    const COMMANDS: [&str; 9] = ["build", "test", "run", "clippy", "doc", "fetch", "metadata", "tree", "install"];
    // Those are in Python, and name cargo in what they say.
    if source.path.starts_with("bench/") {
        return Vec::new();
    }
    let joined = source.text.replace("\\\n", " ");
    let is_said = |line: &str| line.trim_start().starts_with('#') || line.contains("echo ") || line.contains("fail \"");
    let lines = joined.lines().filter(|line| !is_said(line));
    let calls = lines.filter(|line| COMMANDS.iter().any(|command| line.contains(&format!("cargo {command} "))));
    let unlocked = calls.filter(|line| !line.contains("--locked"));
    unlocked.map(|line| format!("{}: {} is without --locked", source.path, line.trim())).collect()
}

fn trailing_space(source: &Source) -> Vec<String> {
    let lines = source.text.lines().enumerate().filter(|(_, line)| line.ends_with([' ', '\t']));
    lines.map(|(index, _)| source.complain(index + 1, "space at the end of the line")).collect()
}

/// The lines of a section of a manifest, each with the one above it.
fn section<'a>(text: &'a str, name: &str) -> Vec<(&'a str, &'a str)> {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.iter().position(|line| *line == name).map_or(lines.len(), |at| at);
    let of_section = lines[from..].windows(2).take_while(|two| !two[1].starts_with('['));
    of_section.filter(|two| two[1].contains('=') && !two[1].starts_with('#')).map(|two| (two[0], two[1])).collect()
}

fn loose_manifests(source: &Source) -> Vec<String> {
    let a_crate = ["crates/", "sim/", "bench/peers/"].iter().any(|dir| source.path.starts_with(dir));
    let inherits = source.text.contains("[lints]\nworkspace = true");
    let forbids = source.text.contains("unsafe_code = \"forbid\"");
    let mut complaints = Vec::new();
    if a_crate && !inherits {
        complaints.push(source.complain(1, "every crate inherits the workspace's lints"));
    }
    if source.path == "Cargo.toml" && !forbids {
        complaints.push(source.complain(1, "unsafe code is forbidden everywhere"));
    }
    complaints
}

fn dependencies_without_reason(source: &Source) -> Vec<String> {
    let dependencies = section(&source.text, "[workspace.dependencies]");
    let bare = dependencies.iter().filter(|(above, line)| !above.starts_with('#') && !line.contains("path ="));
    bare.map(|(_, line)| source.complain(1, &format!("no reason above `{line}`"))).collect()
}

/// A core that cannot do I/O, and crates below the node that use neither the engine nor the command line. Which of our
/// crates uses which is looked at in `imports.rs`.
fn wrong_way_dependencies(source: &Source) -> Vec<String> {
    let forbidden: &[&str] = match source.path.as_str() {
        "crates/core/Cargo.toml" => {
            &["tokio", "tracing", "hyper", "rustix", "rocksdb", "getrandom", "rand", "prometheus-client", "anyhow"]
        }
        "crates/server/Cargo.toml" | "crates/engine-rocksdb/Cargo.toml" => &["clap", "anyhow"],
        path if ["crates/kvorum/", "crates/cli/", "crates/load/"].iter().any(|dir| path.starts_with(dir)) => &[],
        "sim/Cargo.toml" => &["rocksdb", "kvorum-engine-rocksdb", "kvorum-server"],
        _ => &["rocksdb", "kvorum-engine-rocksdb", "tikv-jemallocator", "clap", "anyhow"],
    };
    let dependencies = section(&source.text, "[dependencies]");
    let named = dependencies.iter().filter_map(|(_, line)| line.split(['.', ' ', '=']).next());
    named
        .filter(|name| forbidden.contains(name))
        .map(|name| source.complain(1, &format!("must not depend on {name}")))
        .collect()
}

/// A caller's `true` says nothing to a reader.
fn boolean_arguments(source: &Source) -> Vec<String> {
    let applies = source.path.contains("src/") && !source.is_test();
    let program: Vec<_> =
        source.code().take_while(|(number, _)| applies && *number <= source.lines_before_tests()).collect();
    let is_public = |line: &str| line.trim_start().starts_with("pub ") && function_name(line).is_some();
    let has_boolean = |from: usize| {
        let arguments = program[from..].iter().map(|(_, line)| line.split("->").next().unwrap());
        let mut arguments = arguments.take_while(|line| !line.trim_start().starts_with(['}', '{']));
        let first = arguments.next().unwrap();
        let rest = arguments.take_while(|_| !first.contains(')'));
        std::iter::once(first)
            .chain(rest.take_while(|line| !line.trim_start().starts_with(')')))
            .any(|line| line.contains(": bool"))
    };
    let bad = program.iter().enumerate().filter(|(at, (_, line))| is_public(line) && has_boolean(*at));
    bad.map(|(_, (number, _))| source.complain(*number, "an enum instead of a boolean argument")).collect()
}

/// The type that this line of a program declares. An associated type has the name that its trait gives it.
fn type_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    let kind = words.next().filter(|word| ["struct", "enum", "trait", "type"].contains(word))?;
    let is_associated = kind == "type" && indentation(line) > 0;
    words.next().filter(|_| !is_associated)?.split(|c: char| !c.is_alphanumeric()).next()
}

/// Names of types that programs declare more than once, each with the files.
fn names_that_exist_twice(sources: &[Source]) -> Vec<String> {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.contains("src/") && !source.is_test()) {
        let program = source.code().take_while(|(number, _)| *number <= source.lines_before_tests());
        for name in program.filter_map(|(_, line)| type_name(line)) {
            files.entry(name).or_default().push(&source.path);
        }
    }
    let twice = files.iter().filter(|(_, files)| files.len() > 1);
    twice.map(|(name, files)| format!("{name}: {}", files.join(", "))).collect()
}

/// The files that git keeps, each with its size; none where there is no git or this is no checkout.
fn kept_files() -> Option<Vec<(String, u64)>> {
    let root = root();
    let git = Command::new("git").arg("-C").arg(&root).args(["ls-files", "-z"]).output().ok()?;
    let names = String::from_utf8(git.stdout).ok().filter(|names| git.status.success() && !names.is_empty())?;
    let names = names.split('\0').filter(|name| !name.is_empty());
    // One that was deleted and is not yet committed has no size.
    let sized = names.filter_map(|name| Some((name.to_owned(), root.join(name).symlink_metadata().ok()?.len())));
    Some(sized.collect())
}

/// What is too large of these, in words.
fn too_large(files: &[(String, u64)]) -> Vec<String> {
    let drawing = |name: &str| name.starts_with("docs/") && name.ends_with(".svg");
    let drawings = files.iter().filter(|(name, bytes)| drawing(name) && *bytes >= DRAWING_BYTES_MAX);
    let mut complaints: Vec<String> = drawings.map(|(name, bytes)| format!("{name}: {bytes} bytes")).collect();
    let others = files.iter().filter(|(name, _)| !SOURCES.iter().any(|ending| name.ends_with(ending)));
    let total: u64 = others.map(|(_, bytes)| bytes).sum();
    if total >= TREE_BYTES_MAX {
        complaints.push(format!("all files but sources: {total} bytes, {TREE_BYTES_MAX} are too many"));
    }
    complaints
}

const CODE: &[&str] = &[".rs"];
const MANIFESTS: &[&str] = &["Cargo.toml"];

#[test]
fn a_file_stays_under_600_lines_before_its_tests() {
    hold(CODE, long_files);
    let code = "fn f() {}\n".repeat(FILE_LINES_MAX);
    assert!(refuses(long_files, "crates/core/src/a.rs", &code));
    let declared = format!("#[cfg(test)]\nmod tests;\n{code}");
    assert!(refuses(long_files, "crates/core/src/a.rs", &declared), "a declaration is not where the tests begin");
    assert!(!refuses(long_files, "crates/core/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{code}}}\n")));
}

#[test]
fn a_function_has_at_most_70_lines() {
    hold(CODE, long_functions);
    let body = |lines: usize| {
        format!("impl A {{\n    pub(crate) async fn f(\n{}    ) {{\n    }}\n}}\n", "        x();\n".repeat(lines))
    };
    assert!(!refuses(long_functions, "a.rs", &body(FUNCTION_LINES_MAX - 3)));
    assert!(refuses(long_functions, "a.rs", &body(FUNCTION_LINES_MAX - 2)));
    let bodiless = format!("trait A {{\n    fn f();\n{}}}\n", "    const A: u8 = 1;\n".repeat(FUNCTION_LINES_MAX));
    assert!(!refuses(long_functions, "a.rs", &bodiless), "a declaration ends where it begins");
}

#[test]
fn a_name_of_a_type_has_one_meaning() {
    const NONE: &[String] = &[];
    let mut all = sources(CODE);
    assert_eq!(names_that_exist_twice(&all), NONE);
    let declared = [("a/src/a.rs", "pub(crate) enum Kind<T> {"), ("b/src/b.rs", "    struct Kind;")];
    all = declared.map(|(path, text)| Source { path: path.into(), text: text.into() }).into();
    assert_eq!(names_that_exist_twice(&all), ["Kind: a/src/a.rs, b/src/b.rs"]);
    all[1].text = "    type Kind = u8;\n#[cfg(test)]\nmod tests {\n    struct Kind;\n}\n".into();
    assert_eq!(names_that_exist_twice(&all), NONE, "neither a trait's name nor a test's");
}

#[test]
fn no_public_function_has_a_boolean_argument() {
    hold(CODE, boolean_arguments);
    for bad in
        ["    pub fn f(&self, a: bool) -> u8 {\n}\n", "pub async fn f(\n    a: u8,\n    b: bool,\n) -> bool {\n}\n"]
    {
        assert!(refuses(boolean_arguments, "crates/a/src/a.rs", bad), "{bad}");
        assert!(!refuses(boolean_arguments, "crates/a/src/a.rs", &bad.replace("pub ", "")), "{bad}");
    }
    let field = "pub fn f(\n    a: u8,\n) -> bool {\n    let b: bool = true;\n}\n";
    assert!(!refuses(boolean_arguments, "crates/a/src/a.rs", field), "nor a result, nor what is inside");
}

#[test]
fn nothing_is_left_unfinished() {
    hold(CODE, unfinished);
    for bad in ["    todo!()", "unimplemented!()", "dbg!(x);", "// TODO later", "/* FIXME */"] {
        assert!(refuses(unfinished, "a.rs", bad), "{bad}");
    }
}

#[test]
fn no_program_names_the_checkout_it_was_compiled_in() {
    hold(CODE, paths_of_the_checkout);
    assert!(refuses(paths_of_the_checkout, "a.rs", "Path::new(env!(\"CARGO_MANIFEST_DIR\"))"));
}

#[test]
fn no_channel_is_unbounded() {
    hold(CODE, unbounded_channels);
    for bad in ["mpsc::unbounded_channel()", "let (a, b) = mpsc::channel();", "mpsc::channel::<Vec<u8>>()"] {
        assert!(refuses(unbounded_channels, "a.rs", bad), "{bad}");
    }
    assert!(!refuses(unbounded_channels, "crates/server/src/a/tests.rs", "mpsc::channel()"));
    assert!(!refuses(unbounded_channels, "a.rs", "mpsc::channel::<u8>(8); oneshot::channel::<u8>()"));
}

#[test]
fn no_test_sleeps_for_a_fixed_time() {
    hold(CODE, sleeps_in_tests);
    let fixed = "fn a_rule_holds() {\n    std::thread::sleep(SECOND);\n}\n";
    assert!(refuses(sleeps_in_tests, "crates/kvorum/tests/a.rs", fixed));
    assert!(refuses(sleeps_in_tests, "crates/base/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{fixed}}}\n")));
    assert!(!refuses(sleeps_in_tests, "crates/base/src/a.rs", fixed), "the program may");
    let polling = "fn wait_for() {\n    while !condition() {\n        std::thread::sleep(SHORT);\n    }\n}\n";
    assert!(!refuses(sleeps_in_tests, "crates/kvorum/tests/a.rs", polling));
    let after = "fn a_rule_holds() {\n    for a in b {\n        a();\n    }\n    std::thread::sleep(SECOND);\n}\n";
    assert!(refuses(sleeps_in_tests, "crates/kvorum/tests/a.rs", after), "after a loop is not in it");
}

#[test]
fn core_imports_no_clock_no_chance_and_no_world() {
    hold(CODE, impure_core);
    for bad in ["use std::time::{Duration, Instant};", "SystemTime::now()", "std::fs::read(path)", "tokio::spawn(x)"] {
        assert!(refuses(impure_core, "crates/core/src/a.rs", bad), "{bad}");
        assert!(!refuses(impure_core, "crates/base/src/a.rs", bad), "{bad}");
    }
    assert!(!refuses(impure_core, "crates/core/src/a.rs", "// an Instant would not do"));
}

#[test]
fn every_crate_inherits_the_lints_that_forbid_unsafe_code() {
    hold(MANIFESTS, loose_manifests);
    assert!(refuses(loose_manifests, "crates/a/Cargo.toml", "[package]\nname = \"a\"\n"));
    assert!(refuses(loose_manifests, "bench/peers/Cargo.toml", "[package]\nname = \"a\"\n"));
    assert!(refuses(loose_manifests, "Cargo.toml", "[workspace]\n"));
}

#[test]
fn every_dependency_has_its_reason_beside_it() {
    hold(MANIFESTS, dependencies_without_reason);
    let manifest = "[workspace.dependencies]\n# Why.\na = \"1\"\nb = \"1\"\n\n[other]\nc = \"1\"\n";
    let complaints = dependencies_without_reason(&Source { path: "Cargo.toml".into(), text: manifest.into() });
    assert_eq!(complaints, ["Cargo.toml:1: no reason above `b = \"1\"`"]);
}

#[test]
fn dependencies_point_one_way() {
    hold(MANIFESTS, wrong_way_dependencies);
    for (path, bad) in
        [("crates/core/Cargo.toml", "tokio.workspace = true"), ("crates/replication/Cargo.toml", "rocksdb = \"1\"")]
    {
        assert!(refuses(wrong_way_dependencies, path, &format!("[dependencies]\n{bad}\n")), "{bad}");
        assert!(!refuses(wrong_way_dependencies, path, &format!("[dev-dependencies]\n{bad}\n")), "{bad}");
    }
}

#[test]
fn no_line_ends_in_space() {
    hold(
        &[".rs", ".toml", ".md", ".sh", ".lua", ".py", ".js", ".mjs", ".css", "Makefile", ".gitignore"],
        trailing_space,
    );
    assert!(refuses(trailing_space, "a.rs", "x \ny\n"));
}

#[test]
fn every_cargo_of_the_scripts_is_locked() {
    hold(&["Makefile", "run", "deps", "dist", "fuzz", "rocksdb", "tool"], unlocked_cargo);
    assert!(refuses(unlocked_cargo, "Makefile", "\tcargo test --release"));
    assert!(!refuses(unlocked_cargo, "Makefile", "\tcargo test \\\n\t--locked\n# cargo build x"));
}

#[test]
fn the_licence_is_there() {
    let text = std::fs::read_to_string(root().join("LICENSE")).unwrap();
    assert!(text.contains("Apache License") && text.contains("Version 2.0"));
}

#[test]
fn what_git_keeps_is_small() {
    let file = |name: &str, bytes| (name.to_owned(), bytes);
    assert_eq!(too_large(&[file("docs/a/b.svg", DRAWING_BYTES_MAX)]), ["docs/a/b.svg: 100000 bytes"]);
    assert!(too_large(&[file("docs/a.svg", DRAWING_BYTES_MAX - 1), file("a.svg", 1 << 20)]).is_empty());
    assert_eq!(too_large(&[file("a", TREE_BYTES_MAX - 1), file("b", 1)]).len(), 1);
    assert!(too_large(&[file("a.rs", TREE_BYTES_MAX), file("a.js", TREE_BYTES_MAX)]).is_empty());
    match kept_files() {
        Some(files) => assert_eq!(too_large(&files), Vec::<String>::new()),
        None => eprintln!("SKIPPED: git does not say which files it keeps"),
    }
}
