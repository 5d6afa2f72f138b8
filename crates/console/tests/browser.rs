//! The pages in a real browser, driven by node. Skips, loudly, where Chromium, node or npm is not installed.
//!
//! The modules of npm are pinned by the lockfile and live outside the tree, in `~/.cache/kvorum/browser`, in a directory
//! that is named by the lockfile's digest. `RECORD=1` keeps the pictures of the pages as they are now.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "browser/node.rs"]
mod node;

fn run(file: &str) {
    node::run("tests/browser", file, &[]);
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
fn numbers_on_pages_are_those_that_nodes_gave() {
    run("numbers.test.mjs");
}

#[test]
fn pages_look_as_they_did_and_everybody_can_use_them() {
    run("pages.test.mjs");
}

#[test]
fn a_page_outlives_its_stream_and_does_not_grow() {
    run("time.test.mjs");
}
