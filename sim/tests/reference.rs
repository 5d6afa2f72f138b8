//! docs/reference/invariants.md, held to the list of rules and defects and to what `mutants.txt` says notices each.
//!
//! The part between `<!-- from the code: rules -->` and `<!-- end -->` is compared; `RECORD=1` writes it anew.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kvorum_core::mutant::DEFECTS;

const PAGE: &str = "docs/reference/invariants.md";
const BEGIN: &str = "<!-- from the code: rules -->\n";
const END: &str = "<!-- end -->";
const RULES: &str = "crates/core/src/quorum/rules.rs";

fn root() -> PathBuf {
    PathBuf::from("..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

/// The name of the last function that begins in `text`.
fn last_function(text: &str) -> &str {
    let begins = text.lines().rev().filter(|line| !line.trim_start().starts_with("//"));
    let name = begins.filter_map(|line| line.split_once("fn ")).map(|(_, rest)| rest.split(['(', '<']).next().unwrap());
    name.into_iter().next().unwrap()
}

/// Where the program plants each defect: the function and its file.
fn places(dir: &Path, found: &mut BTreeMap<String, Vec<String>>) {
    let mut entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        if path.is_dir() {
            places(&path, found);
        } else if name.contains("/src/") && name.ends_with(".rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for (at, begin) in text.match_indices("is_on(Mutant::") {
                let mutant = text[at + begin.len()..].split(')').next().unwrap();
                let file = name.strip_prefix("crates/").unwrap_or(&name);
                let place = format!("`{}`, `{file}`", last_function(&text[..at]));
                let places = found.entry(mutant.to_owned()).or_default();
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
    }
}

/// What notices a defect, in the words of the page.
fn noticed(recorded: &str, mutant: &str) -> String {
    let line = recorded.lines().find_map(|line| line.strip_prefix(&format!("{mutant}: ")));
    let line = line.unwrap_or_else(|| panic!("sim/tests/mutants.txt has no {mutant}"));
    let who = |who: &str| {
        let is_invariant = root().join(format!("sim/src/invariants/{who}.rs")).exists();
        match who {
            _ if who.starts_with("chain ") => "every order".to_owned(),
            _ if is_invariant => format!("`{who}.rs`"),
            _ => format!("story of {who}"),
        }
    };
    line.split(", ").map(who).collect::<Vec<_>>().join(", ")
}

fn table() -> String {
    let mut found = BTreeMap::new();
    for dir in ["crates", "sim/src"] {
        places(&root().join(dir), &mut found);
    }
    let recorded = read("sim/tests/mutants.txt");
    let mut text = "| rule | where | defect | what notices it |\n|---|---|---|---|\n".to_owned();
    for defect in DEFECTS {
        let name = format!("{:?}", defect.mutant);
        let places = found.get(&name).unwrap_or_else(|| panic!("{name} is planted nowhere"));
        let notices = noticed(&recorded, &name);
        let (rule, places, what) = (defect.rule, places.join("; "), defect.defect.trim());
        text += &format!("| {rule} | {places} | {what} (`{name}`) | {notices} |\n");
    }
    text
}

#[test]
fn every_rule_and_its_defect_are_in_the_reference() {
    let page = read(PAGE);
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let text = format!("{before}{BEGIN}\n{}\n{END}{after}", table());
    if std::env::var_os("RECORD").is_some() {
        std::fs::write(root().join(PAGE), text).unwrap();
        return;
    }
    let changed = page.lines().zip(text.lines()).find(|(before, now)| before != now);
    assert!(text == page, "{PAGE} is out of date, RECORD=1 writes it anew; the first difference: {changed:?}");
}

/// What a rule is called in the list and beside its function.
#[test]
fn rules_of_the_register_are_in_the_words_of_the_list() {
    let text = read(RULES);
    let said: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("/// ")).collect();
    let said = said.join(" ");
    for defect in DEFECTS {
        let rule = format!("**{}", defect.rule.trim_end_matches('.'));
        let is_there = text.contains(&format!("Mutant::{:?}", defect.mutant));
        assert!(!is_there || said.contains(&rule), "{RULES} has no rule in these words: {rule}");
    }
}
