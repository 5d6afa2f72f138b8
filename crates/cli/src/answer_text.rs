//! What queries and scripts answer, as tables and lines for people.

use serde_json::{Map, Value};

use crate::output::align;
use crate::printable::printable;

/// What a person need not see of an answer: what proves it, and what says how to go on.
const PROOFS: [&str; 6] = ["bytes", "digest", "coverage", "after", "complete", "count"];

/// The groups of a query as a table, or the pairs of a script as lines; behind them what else is to be known, such as
/// partitions that are missing.
///
/// # Errors
/// If the answer is no JSON.
pub(crate) fn to_text(answer: &[u8]) -> serde_json::Result<String> {
    let mut text = String::new();
    for line in answer.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        let Value::Object(mut line) = serde_json::from_slice(line)? else { continue };
        match (line.remove("groups"), line.get("complete")) {
            (Some(groups), _) => text += &(table(&groups) + &rest(&line)),
            (None, Some(_)) => text += &rest(&line),
            (None, None) => text += &pair(&line),
        }
    }
    Ok(text)
}

/// A line for each group and a column for each of its members.
fn table(groups: &Value) -> String {
    let groups: Vec<_> = groups.as_array().into_iter().flatten().filter_map(Value::as_object).collect();
    let mut names: Vec<&String> = groups.iter().flat_map(|group| group.keys()).collect();
    names.sort_by_key(|name| (!name.starts_with("group"), *name));
    names.dedup();
    let row = |group: &Map<String, Value>| names.iter().map(|name| cell(group.get(*name))).collect();
    let head = names.iter().map(|name| printable(name)).collect();
    align(&[vec![head], groups.into_iter().map(row).collect()].concat())
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => printable(text),
        Some(other) => printable(&other.to_string()),
    }
}

/// A key and a value, with a tab between.
fn pair(line: &Map<String, Value>) -> String {
    let member = |name: &str| cell(line.get(name).or_else(|| line.get(&format!("{name}_base64"))));
    format!("{}\t{}\n", member("key"), member("value"))
}

/// Members that are neither zero nor empty nor proofs, a line each.
fn rest(line: &Map<String, Value>) -> String {
    let is_told = |(name, value): &(&String, &Value)| {
        let is_nothing = value.is_null() || value.as_array().is_some_and(Vec::is_empty) || value.as_u64() == Some(0);
        !is_nothing && !PROOFS.contains(&name.as_str())
    };
    let told = line.iter().filter(is_told);
    told.map(|(name, value)| format!("{}: {}\n", printable(name), cell(Some(value)))).collect()
}

#[cfg(test)]
mod tests {
    use super::to_text;

    #[test]
    fn groups_are_a_table_and_what_is_missing_is_said_below() {
        let answer = br#"{"groups":[{"group":null,"count":2,"sum":12.5},{"group":"ann","count":10,"sum":null}],
            "not_json":0,"complete":false,"count":12,"bytes":9,"digest":"a","after":null,"coverage":[1],
            "missing":["0-9"]}"#
            .map(|byte| if byte == b'\n' { b' ' } else { byte });
        let text = "group  count  sum\n-      2      12.5\nann    10     -\nmissing: [\"0-9\"]\n";
        assert_eq!(to_text(&answer).unwrap(), text);
    }

    #[test]
    fn pairs_are_lines() {
        let answer = b"{\"key\":\"a\\tb\",\"value\":{\"n\":1}}\n{\"complete\":true,\"count\":1,\"coverage\":[]}\n";
        assert_eq!(to_text(answer).unwrap(), "a\\u{9}b\t{\"n\":1}\n");
        assert!(to_text(b"<html>").is_err());
    }
}
