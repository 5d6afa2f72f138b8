//! The reference in `docs/reference`, held to the code: its tables are written from what the program has, and compared.
//!
//! A page is written by hand, but for what stands between `<!-- from the code: NAME -->` and `<!-- end -->`. `RECORD=1`
//! writes that anew. What a table cannot be made from, such as the fields of a page of JSON, a test looks for in the
//! text.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod alerts;
mod board;
mod command_line;
mod fields;
mod http;
mod metrics;
mod prometheus;
mod run_json;
mod settings;
#[allow(dead_code, unused_imports, unreachable_pub, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
#[path = "../process/support/mod.rs"]
mod support;

use std::path::PathBuf;

const END: &str = "<!-- end -->";

fn root() -> PathBuf {
    PathBuf::from("../..")
}

fn page(name: &str) -> PathBuf {
    root().join("docs/reference").join(name)
}

/// Holds each of these parts of a page to its text, or writes them.
fn hold(name: &str, parts: &[(&str, String)]) {
    let recorded = std::fs::read_to_string(page(name)).unwrap();
    let text = parts.iter().fold(recorded.clone(), |text, (part, table)| {
        let begin = format!("<!-- from the code: {part} -->\n");
        let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("no part `{part}` in {name}"));
        let (_, after) = rest.split_once(END).unwrap_or_else(|| panic!("the part `{part}` of {name} has no end"));
        format!("{before}{begin}\n{}\n\n{END}{after}", table.trim())
    });
    hold_file(&format!("docs/reference/{name}"), &text);
}

/// Holds a whole file to this text, or writes it.
fn hold_file(path: &str, text: &str) {
    if std::env::var_os("RECORD").is_some() {
        std::fs::write(root().join(path), text).unwrap();
        return;
    }
    let recorded = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    let changed = recorded.lines().zip(text.lines()).find(|(before, now)| before != now);
    assert!(
        text == recorded,
        "{path} is not what the code says; write it anew with\n  RECORD=1 cargo test --release -p kvorum \
         --test reference\nthe first difference: {changed:?}"
    );
}

/// A table of Markdown. A bar would end a cell.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: [String; N]| {
        let cells = cells.map(|cell| cell.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|"));
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = format!("|{}\n", "---|".repeat(N));
    let rows: String = rows.into_iter().map(line).collect();
    line(head.map(str::to_owned)) + &rule + &rows
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

/// A sentence has an end.
fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', ':']) { text.to_owned() } else { format!("{text}.") }
}
