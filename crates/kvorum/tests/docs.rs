//! What the documents say of the tree: what they name is there, links lead somewhere, and sentences are short.
//!
//! As in `tidy.rs`, each rule is a function from a text to complaints. It is run over the tree, and over a snippet that
//! breaks it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Of a hundred sentences ninety-five have at most so many words, and none has more than `WORDS_MAX`.
const WORDS_OF_95: usize = 28;
const WORDS_MAX: usize = 45;
const ARCHITECTURE_LINES_MAX: usize = 250;

/// What documents name in backticks although it is not ours.
const FOREIGN: &[(&str, &[&str])] = &[
    (
        "options and functions of RocksDB and zstd that were considered, or are left at their defaults",
        &[
            "track_and_verify_wals",
            "no_slowdown",
            "use_zstd_dict_trainer",
            "FASTCOVER_selectSegment",
            "ZDICT_finalizeDictionary",
            "prepopulate_block_cache",
            "max_background_jobs",
            "writable_file_max_buffer_size",
            "max_bytes_for_level_base",
            "min_write_buffer_number_to_merge",
            "atomic_flush",
            "force_atomic_flush",
        ],
    ),
    (
        "the kernel's",
        &[
            "SCHED_IDLE",
            "sched_setattr",
            "O_APPEND",
            "O_DIRECT",
            "fallocate",
            "fdatasync",
            "pwrite",
            "haltpoll",
            "CAP_SYS_ADMIN",
        ],
    ),
    ("an event of perf", &["raw_syscalls", "sys_enter"]),
    ("an administrator's tools and options", &["dmesg", "fstrim", "nodiscard", "discard", "fpath", "nohup"]),
    ("crates that were considered", &["zerocopy", "turmoil", "loom", "jemalloc_pprof", "pprof", "quick_cache"]),
    ("a trait's function in a crate that was considered", &["introduce"]),
    ("the build's", &["RUSTFLAGS", "ccache"]),
    ("an option of hyper that was considered", &["pipeline_flush"]),
    ("values of an example", &["blue", "black", "red"]),
    ("an arrival process on the command line", &["exp"]),
];

/// Files that come into being: cargo's, or a user's.
const MADE: &[&str] = &[".cargo/rocksdb.toml", "kvorum.toml", "words.lua", "averages.lua", "careful.lua"];

struct Page {
    /// From the workspace's root.
    path: String,
    text: String,
}

/// The files of the workspace, with what sources among them say.
#[derive(Default)]
struct Tree {
    files: BTreeSet<String>,
    folders: BTreeSet<String>,
    /// The words of each source, by its path, without its comments.
    words: BTreeMap<String, BTreeSet<String>>,
    all_words: BTreeSet<String>,
    /// The anchors of each page.
    anchors: BTreeMap<String, BTreeSet<String>>,
}

impl Tree {
    fn insert(&mut self, path: &str, text: &str) {
        let folders = Path::new(path).ancestors().skip(1).map(|folder| folder.display().to_string());
        self.folders.extend(folders);
        self.files.insert(path.to_owned());
        if path.ends_with(".md") {
            let headings = prose(text);
            let headings = headings.lines().filter(|line| line.starts_with('#'));
            self.anchors.insert(path.to_owned(), headings.map(anchor).collect());
        } else if !path.ends_with("tests/docs.rs") {
            let words = words(path, text);
            self.all_words.extend(words.iter().cloned());
            self.words.insert(path.to_owned(), words);
        }
    }

    /// Whether this is a file or a folder, named from the root or from some folder on, or a decision by its number.
    fn has_path(&self, name: &str) -> bool {
        if let Some(number) = name.strip_prefix("docs/decisions/").filter(|number| number.len() == 4) {
            return self.files.iter().any(|path| path.starts_with(&format!("docs/decisions/{number}-")));
        }
        let name = name.trim_end_matches('/');
        let end = format!("/{name}");
        let is_it = |path: &String| path == name || path.ends_with(&end);
        self.files.iter().any(is_it) || self.folders.iter().any(is_it)
    }

    /// Whether one file names all of these.
    fn has_together(&self, names: &[&str]) -> bool {
        self.words.values().any(|words| names.iter().all(|name| words.contains(*name)))
    }

    /// Whether a source of this path, or of one that ends so, has all of these.
    fn has_in(&self, path: &str, names: &[&str]) -> bool {
        let end = format!("/{path}");
        let mut of = self.words.iter().filter(|(whole, _)| *whole == path || whole.ends_with(&end));
        of.any(|(_, words)| names.iter().all(|name| words.contains(*name)))
    }
}

fn root() -> PathBuf {
    Path::new("../..").canonicalize().unwrap()
}

/// All files of the checkout that are text, but for what builds and nodes make.
fn pages() -> Vec<Page> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !["target", "data", ".git"].contains(&name.as_str()) {
                    folders.push(path);
                }
                continue;
            }
            // A corpus of a fuzzer is no text, and still a file that a document may name.
            let text = std::fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap();
            found.push(Page { path: path.strip_prefix(&root).unwrap().display().to_string(), text });
        }
    }
    found
}

fn tree_of(pages: &[Page]) -> Tree {
    let mut tree = Tree::default();
    pages.iter().for_each(|page| tree.insert(&page.path, &page.text));
    tree
}

/// `kvorum profile` writes the pages of profiles.
fn is_document(path: &str) -> bool {
    let is_made = path.starts_with("docs/reports/") && path.contains("/profiles/");
    path.ends_with(".md") && (path.starts_with("docs/") || !path.contains('/')) && !is_made
}

/// Notes of the laboratory and reports describe what was.
fn is_history(path: &str) -> bool {
    ["docs/lab/", "docs/reports/"].iter().any(|folder| path.starts_with(folder))
}

fn is_word(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn words(path: &str, text: &str) -> BTreeSet<String> {
    let kinds = [".rs", ".toml", ".sh", ".py", ".lua", "Makefile"];
    let folders = ["scripts/", "bench/", "contrib/"];
    if !kinds.iter().any(|kind| path.ends_with(kind)) && !folders.iter().any(|folder| path.starts_with(folder)) {
        return BTreeSet::new();
    }
    let code = text.lines().map(|line| if path.ends_with(".rs") { line.split("// ").next().unwrap() } else { line });
    let code = code.filter(|line| !line.trim_start().starts_with("//"));
    let split = code.flat_map(|line| line.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')));
    split.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Without blocks of code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            prose.push_str(line);
        }
        prose.push('\n');
    }
    prose
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let lower = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = lower.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// Whether this is the path of a file or folder here. `DIR/NAME.md` has parts that a reader chooses.
fn is_path(name: &str) -> bool {
    let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_./-".contains(letter));
    let is_chosen = |part: &str| part.split('.').next().is_some_and(is_placeholder);
    let ends = [".rs", ".md", ".toml", ".lua", ".sh", ".py"];
    let begins = ["crates/", "sim/", "bench/", "docs/", "scripts/", "fuzz/", "contrib/"];
    let is_ours = ends.iter().any(|end| name.ends_with(end)) || begins.iter().any(|begin| name.starts_with(begin));
    is_ours && is_plain && !name.starts_with('/') && !name.split('/').any(is_chosen)
}

fn is_placeholder(part: &str) -> bool {
    part.len() > 1
        && part != "README"
        && part != "SUMMARY"
        && part.len() < 8
        && part.chars().all(|letter| letter.is_ascii_uppercase())
}

/// Programs name a metric without its unit, and without the word for its part of the node.
fn is_metric(name: &str, tree: &Tree) -> bool {
    let units = ["_total", "_bytes", "_seconds"];
    let without_units = units.iter().filter_map(|unit| name.strip_suffix(unit)).chain([name]);
    let mut parts = without_units.flat_map(|name| [Some(name), name.split_once('_').map(|(_, inner)| inner)]).flatten();
    parts.any(|name| tree.all_words.contains(name))
}

/// Names in backticks that nothing in the tree has.
fn absent_names(page: &Page, tree: &Tree) -> Vec<String> {
    let is_foreign = |name: &str| FOREIGN.iter().any(|(_, names)| names.contains(&name));
    let is_there = |name: &str| {
        if is_path(name) {
            return MADE.contains(&name) || tree.has_path(name);
        }
        let parts: Vec<&str> = name.trim_end_matches("()").split("::").collect();
        if !parts.iter().all(|part| is_word(part)) {
            return true;
        }
        if let Some(metric) = name.strip_prefix("kvorum_").filter(|_| parts.len() == 1) {
            return tree.all_words.contains(name) || is_metric(metric, tree);
        }
        let parts: Vec<&str> = parts.into_iter().filter(|part| !is_foreign(part)).collect();
        parts.iter().all(|part| tree.all_words.contains(*part)) && (parts.len() < 2 || tree.has_together(&parts))
    };
    let prose = prose(&page.text);
    let absent = prose.split('`').skip(1).step_by(2).filter(|name| !is_there(name));
    absent.map(|name| format!("{}: `{name}` is not in the tree", page.path)).collect()
}

/// Names that stand beside a source, as in `a.rs`: `f`, `g`, or `f`, `g`, `a.rs` and `f` in `a.rs`, and are not in it.
fn misplaced_names(page: &Page, tree: &Tree) -> Vec<String> {
    let prose = prose(&page.text);
    let mut found = Vec::new();
    let mut parts = prose.split('`');
    // A source with what stands between it and the next name, and the names that may belong to the next source.
    let (mut source, mut names) = (None, Vec::new());
    while let (Some(before), Some(name)) = (parts.next(), parts.next()) {
        let of_source = source.take().filter(|(_, end)| before == *end).map(|(path, _)| path);
        let is_source = is_path(name) && name.ends_with(".rs");
        if before != ", " && !(is_source && before == " in ") {
            names.clear();
        }
        let mut check = |path: &str, name: &str| {
            let parts: Vec<&str> = name.trim_end_matches("()").split("::").collect();
            if parts.iter().all(|part| is_word(part)) && !tree.has_in(path, &parts) {
                found.push(format!("{}: `{name}` is not in {path}", page.path));
            }
        };
        if is_source {
            names.drain(..).for_each(|named| check(name, named));
            source = Some((name, ": "));
        } else if let Some(path) = of_source {
            check(path, name);
            source = Some((path, ", "));
        } else {
            names.push(name);
        }
    }
    found
}

/// Links that lead to no file, or to no heading of it.
fn broken_links(page: &Page, tree: &Tree) -> Vec<String> {
    let text = prose(&page.text);
    let links = text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split_once(')')).map(|(link, _)| link);
    let inner = links.filter(|link| !link.contains("://") && !link.starts_with("mailto:"));
    let is_broken = |link: &&str| {
        let (path, heading) = link.split_once('#').map_or((*link, None), |(path, heading)| (path, Some(heading)));
        let target = if path.is_empty() { page.path.clone() } else { beside(&page.path, path) };
        let has_heading = |heading: &str| tree.anchors.get(&target).is_some_and(|anchors| anchors.contains(heading));
        !(tree.files.contains(&target) || tree.folders.contains(&target)) || !heading.is_none_or(has_heading)
    };
    inner.filter(is_broken).map(|link| format!("{}: the link {link} leads nowhere", page.path)).collect()
}

/// The path that `link` has from the root, if it stands in the file `path`.
fn beside(path: &str, link: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for component in Path::new(link).components() {
        match component {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(part) => parts.push(part.to_str().unwrap()),
            _ => {}
        }
    }
    parts.join("/")
}

/// Pages of the book that its summary does not name.
fn pages_outside_the_book(summary: &str, paths: &[&str]) -> Vec<String> {
    let of_book = paths.iter().filter(|path| is_document(path)).filter_map(|path| path.strip_prefix("docs/"));
    let outside = of_book.filter(|path| *path != "SUMMARY.md" && !summary.contains(&format!("]({path})")));
    outside.map(|path| format!("docs/SUMMARY.md does not name {path}")).collect()
}

/// All sentences with their numbers of words. Tables, headings and code have none; an item of a list begins one.
fn sentences(text: &str) -> Vec<(usize, String)> {
    let mut blocks = vec![String::new()];
    for line in prose(text).lines().map(str::trim) {
        let item = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or_else(|| {
            let (number, rest) = line.split_once(". ")?;
            number.chars().all(|digit| digit.is_ascii_digit()).then_some(rest)
        });
        if item.is_some() || line.is_empty() || line.starts_with(['|', '#', '<']) {
            blocks.push(String::new());
        }
        if !line.starts_with(['|', '#', '<']) {
            let block = blocks.last_mut().unwrap();
            block.push_str(item.unwrap_or(line));
            block.push(' ');
        }
    }
    blocks.iter().flat_map(|block| sentences_of_block(block)).collect()
}

/// A quotation of code is one word, and a link its text.
fn sentences_of_block(block: &str) -> Vec<(usize, String)> {
    let parts = block.split('`').enumerate();
    let code: String = parts.map(|(index, part)| if index % 2 == 1 { "code" } else { part }).collect();
    let mut text = String::new();
    let mut rest = code.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, behind)| behind);
    }
    text.push_str(rest);
    let mut sentences = vec![String::new()];
    for word in text.split_whitespace() {
        let sentence = sentences.last_mut().unwrap();
        sentence.push_str(word);
        sentence.push(' ');
        if word.trim_end_matches([')', '"', '*', '_', '\'']).ends_with(['.', '!', '?', ':']) {
            sentences.push(String::new());
        }
    }
    let is_counted = |word: &&str| word.chars().any(char::is_alphanumeric);
    let counted = sentences.into_iter().map(|text| (text.split(' ').filter(is_counted).count(), text));
    counted.filter(|(words, _)| *words > 0).collect()
}

fn long_sentences(pages: &[Page]) -> Vec<String> {
    let with_page = |page: &Page| {
        let path = page.path.clone();
        sentences(&page.text).into_iter().map(move |(words, text)| (words, path.clone(), text))
    };
    let mut all: Vec<_> = pages.iter().flat_map(with_page).collect();
    all.sort();
    let Some((of_95, ..)) = all.get(all.len() * 95 / 100) else { return Vec::new() };
    let too_long = all.iter().filter(|(words, ..)| *words > WORDS_MAX);
    let mut complaints: Vec<String> =
        too_long.map(|(words, path, text)| format!("{path}: {words} words: {text}")).collect();
    if *of_95 > WORDS_OF_95 {
        complaints.push(format!("one in twenty sentences has {of_95} words or more: {WORDS_OF_95} are allowed"));
    }
    complaints
}

/// Files that comments name and that are not there. What a comment calls `DIR/NAME.md` is no file.
fn absent_sources(page: &Page, tree: &Tree) -> Vec<String> {
    let mark = if page.path.ends_with(".rs") { "//" } else { "#" };
    let comments = page.text.lines().filter_map(|line| Some(line.split_once(mark)?.1));
    let names = comments
        .flat_map(|comment| comment.split(|letter: char| !(letter.is_ascii_alphanumeric() || "_./-".contains(letter))));
    let named = names.map(|name| name.trim_end_matches('.')).filter(|name| is_path(name) && !name.starts_with('.'));
    let absent = named.filter(|name| !MADE.contains(name) && !tree.has_path(name));
    absent.map(|name| format!("{}: a comment names {name}, which is not there", page.path)).collect()
}

fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// A small tree: a source, and a page with a heading.
fn example() -> Tree {
    let mut tree = Tree::default();
    tree.insert("crates/a/src/b.rs", "struct Store;\nfn put_all() {} // and lost_word\n");
    tree.insert("crates/a/src/c.rs", "fn get_all() {}");
    tree.insert("docs/d.md", "# One `two`: three\n```\n# no heading\n```\n");
    tree
}

fn page(path: &str, text: &str) -> Page {
    Page { path: path.into(), text: text.into() }
}

#[test]
fn what_documents_name_is_in_the_tree() {
    let pages = pages();
    let tree = tree_of(&pages);
    let documents = pages.iter().filter(|page| is_document(&page.path) && !is_history(&page.path));
    assert_none(&documents.flat_map(|page| absent_names(page, &tree)).collect::<Vec<_>>());
    for bad in [
        "a/src/e.rs",
        "crates/e",
        "put_none",
        "kvorum_a_put_none_total",
        "Stores",
        "lost_word",
        "Store::get_all",
        "Store::put_none()",
    ] {
        assert_eq!(absent_names(&page("README.md", &format!("See `{bad}`.")), &example()).len(), 1, "{bad}");
    }
    let good = "`a/src/b.rs`, `crates/a/`, `Store::put_all()`, `DIR/NAME.md`, `a b`, `O_DIRECT`, `kvorum_a_put_all_total`\n```\nx `e.rs`\n```\n";
    assert_none(&absent_names(&page("README.md", good), &example()));
}

#[test]
fn what_documents_name_behind_a_source_is_in_it() {
    let pages = pages();
    let tree = tree_of(&pages);
    let documents = pages.iter().filter(|page| is_document(&page.path));
    assert_none(&documents.flat_map(|page| misplaced_names(page, &tree)).collect::<Vec<_>>());
    let complaints = |text: &str| misplaced_names(&page("README.md", text), &example()).len();
    assert_eq!(complaints("`src/b.rs`: `put_all`, `get_all`, `c.rs`: `Store`, `get_all`."), 2);
    assert_eq!(complaints("| `get_all`, `Store`, `b.rs` |, and `Store` in `c.rs`"), 2);
    assert_eq!(
        complaints("`b.rs`: `Store::put_all()`; `get_all`. `b.rs` and `get_all`, `c.rs`; `Store` is in `b.rs`"),
        0
    );
}

#[test]
fn an_allowed_foreign_name_is_still_used() {
    let pages = pages();
    let text: String = pages.iter().filter(|page| is_document(&page.path)).map(|page| page.text.as_str()).collect();
    let unused = FOREIGN.iter().flat_map(|(_, names)| *names).filter(|name| !text.contains(**name));
    assert_none(&unused.map(|name| format!("no document names {name}")).collect::<Vec<_>>());
}

#[test]
fn links_of_documents_lead_somewhere() {
    let pages = pages();
    let tree = tree_of(&pages);
    let documents = pages.iter().filter(|page| is_document(&page.path));
    assert_none(&documents.flat_map(|page| broken_links(page, &tree)).collect::<Vec<_>>());
    for bad in ["e.md", "../d.md", "d.md#one", "#no-heading", "d.md#no-heading"] {
        assert_eq!(broken_links(&page("docs/d.md", &format!("[x]({bad})")), &example()).len(), 1, "{bad}");
    }
    let good = "[x](d.md#one-two-three) [x](#one-two-three) [x](../crates/a/src/b.rs) [x](https://a.b/c)";
    assert_none(&broken_links(&page("docs/d.md", good), &example()));
}

#[test]
fn every_page_is_in_the_book() {
    let pages = pages();
    let paths: Vec<&str> = pages.iter().map(|page| page.path.as_str()).collect();
    let summary = pages.iter().find(|page| page.path == "docs/SUMMARY.md").unwrap();
    assert_none(&pages_outside_the_book(&summary.text, &paths));
    assert_eq!(pages_outside_the_book("- [A](a.md)", &["docs/a.md", "docs/SUMMARY.md", "docs/b.md", "c.md"]).len(), 1);
}

#[test]
fn sentences_of_documents_are_short() {
    let documents: Vec<Page> = pages().into_iter().filter(|page| is_document(&page.path)).collect();
    assert_none(&long_sentences(&documents));
    let of_words = |words: usize| page("README.md", &format!("{}.", vec!["word"; words].join(" ")));
    assert_none(&long_sentences(&[of_words(WORDS_OF_95)]));
    assert_eq!(long_sentences(&[of_words(WORDS_OF_95 + 1)]).len(), 1);
    assert_eq!(long_sentences(&[of_words(WORDS_MAX + 1)]).len(), 2);
    let text = "# One two\n\nA b `c d` e. F [g h](i/j.x) k:\n- l m\n- n.\n\n| o | p |\n```\nq r\n```\n";
    let counts: Vec<usize> = sentences(text).into_iter().map(|(words, _)| words).collect();
    assert_eq!(counts, [4, 4, 2, 1]);
}

#[test]
fn the_tour_of_the_code_stays_short() {
    let lines = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap().lines().count();
    assert!(lines <= ARCHITECTURE_LINES_MAX, "ARCHITECTURE.md has {lines} lines");
}

#[test]
fn a_source_that_a_comment_cites_exists_in_the_tree() {
    let pages = pages();
    let tree = tree_of(&pages);
    let kinds = [".rs", ".sh", ".py", ".toml", "Makefile"];
    let is_source = |path: &str| kinds.iter().any(|kind| path.ends_with(kind)) && !path.ends_with("tests/docs.rs");
    let sources = pages.iter().filter(|page| is_source(&page.path));
    assert_none(&sources.flat_map(|page| absent_sources(page, &tree)).collect::<Vec<_>>());
    for bad in ["//! See `docs/e.md`.", "x(); // as in e.rs", "/// (crates/e/src)"] {
        assert_eq!(absent_sources(&page("a.rs", bad), &example()).len(), 1, "{bad}");
    }
    assert_eq!(absent_sources(&page("a.py", "# see e.py"), &example()).len(), 1);
    assert_none(&absent_sources(&page("a.rs", "let x = \"e.rs\"; // as `b.rs` and DIR/KIND.md"), &example()));
}
