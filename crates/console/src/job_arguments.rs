//! The arguments of a job of the lab, from what a page sends: pure. Nothing becomes an argument but options that are
//! named here, with plain values.

use serde_json::{Map, Value};

use crate::problem::ConsoleProblem;

const VALUE_CHARS_MAX: usize = 100;

/// What of `kvorum bench` can be started.
const COMMANDS: &[(&str, &[&str])] = &[
    ("run", &["rate", "batch"]),
    ("knee", &["rate", "objective", "sustained", "batch"]),
    ("compare", &["rate", "pairs", "batch"]),
];

/// Options that all of them have.
const COMMON: &[&str] = &[
    "workload",
    "duration",
    "warmup",
    "key-order",
    "connections",
    "threads",
    "pipeline",
    "keys",
    "value-size",
    "ack",
    "from",
    "timeout",
];

/// The arguments of `kvorum bench COMMAND`, without where it sends and writes to. `a` and `b` of a comparison are not
/// among them.
///
/// # Errors
/// 400
pub(crate) fn bench_arguments(command: &str, arguments: &Map<String, Value>) -> Result<Vec<String>, ConsoleProblem> {
    let Some((name, own)) = COMMANDS.iter().find(|(name, _)| *name == command) else {
        return Err(ConsoleProblem::bad_request("`command` is knee, run or compare"));
    };
    let mut all = vec!["bench".to_owned(), (*name).to_owned()];
    for (option, value) in arguments {
        if *name == "compare" && (option == "a" || option == "b") {
            continue;
        }
        if option == "compressible" && value.is_boolean() {
            all.extend(value.as_bool().filter(|is_set| *is_set).map(|_| "--compressible".to_owned()));
            continue;
        }
        if !COMMON.contains(&option.as_str()) && !own.contains(&option.as_str()) {
            return Err(ConsoleProblem::bad_request(format!("`kvorum bench {name}` has no option {option:?} here")));
        }
        all.push(format!("--{option}={}", plain(option, value)?));
    }
    Ok(all)
}

/// A value that is what it seems.
fn plain(option: &str, value: &Value) -> Result<String, ConsoleProblem> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let is_plain = text.chars().all(|letter| letter.is_ascii_alphanumeric() || ".:=,+-".contains(letter));
    if text.is_empty() || text.len() > VALUE_CHARS_MAX || !is_plain || text.starts_with('-') {
        return Err(ConsoleProblem::bad_request(format!("{option} is a number or a short text of letters and digits")));
    }
    Ok(text)
}

/// What a profile is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProfileOrder {
    pub(crate) node: usize,
    pub(crate) kind: &'static str,
    pub(crate) seconds: u64,
    /// The job of an earlier profile, to show the difference to.
    pub(crate) against: Option<u64>,
}

/// Reads `{"node":0,"kind":"cpu","seconds":10,"against":null}`.
///
/// # Errors
/// 400
pub(crate) fn profile_order(body: &Value) -> Result<ProfileOrder, ConsoleProblem> {
    let bad = |what: &str| ConsoleProblem::bad_request(what.to_owned());
    let node = body["node"].as_u64().and_then(|node| usize::try_from(node).ok());
    let kind = ["cpu", "alloc", "lock"].into_iter().find(|kind| body["kind"].as_str() == Some(kind));
    let seconds = body["seconds"].as_u64().filter(|seconds| (1..=120).contains(seconds));
    let against = match &body["against"] {
        Value::Null => None,
        id => Some(id.as_u64().ok_or_else(|| bad("`against` is the id of an earlier profile, or null"))?),
    };
    Ok(ProfileOrder {
        node: node.ok_or_else(|| bad("`node` is the number of a node, from 0"))?,
        kind: kind.ok_or_else(|| bad("`kind` is cpu, alloc or lock"))?,
        seconds: seconds.ok_or_else(|| bad("`seconds` is a whole number from 1 to 120"))?,
        against,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made(command: &str, arguments: &Value) -> Result<Vec<String>, u16> {
        bench_arguments(command, arguments.as_object().unwrap()).map_err(|problem| problem.status)
    }

    #[test]
    fn options_that_are_known_become_arguments() {
        let arguments = json!({ "rate": 5000, "workload": "mixed:put=1,get=3", "compressible": true });
        let expected = ["bench", "run", "--compressible", "--rate=5000", "--workload=mixed:put=1,get=3"];
        assert_eq!(made("run", &arguments).unwrap(), expected);
        let sides = json!({ "a": 1, "b": 2, "pairs": 8 });
        assert_eq!(made("compare", &sides).unwrap(), ["bench", "compare", "--pairs=8"]);
    }

    #[test]
    fn nothing_else_does() {
        for (command, arguments) in [
            ("scenario", json!({})),
            ("run --out", json!({})),
            ("run", json!({ "out": "/etc" })),
            ("run", json!({ "url": "http://evil.example" })),
            ("run", json!({ "a": "rm -rf" })),
            ("run", json!({ "rate": "1 --out /etc" })),
            ("run", json!({ "rate": "--out" })),
            ("run", json!({ "rate": "" })),
            ("run", json!({ "rate": [1] })),
            ("run", json!({ "rate": "9".repeat(101) })),
            ("run", json!({ "objective": "p99=5ms" })),
        ] {
            assert_eq!(made(command, &arguments), Err(400), "{command} {arguments}");
        }
    }

    #[test]
    fn a_profile_says_of_what_and_how_long() {
        let order = profile_order(&json!({ "node": 1, "kind": "alloc", "seconds": 10, "against": 4 })).unwrap();
        assert_eq!(order, ProfileOrder { node: 1, kind: "alloc", seconds: 10, against: Some(4) });
        for bad in [
            json!({}),
            json!({ "node": -1, "kind": "cpu", "seconds": 1 }),
            json!({ "node": 0, "kind": "x", "seconds": 1 }),
            json!({ "node": 0, "kind": "cpu", "seconds": 121 }),
            json!({ "node": 0, "kind": "cpu", "seconds": 1, "against": "../1" }),
        ] {
            assert_eq!(profile_order(&bad).unwrap_err().status, 400, "{bad}");
        }
    }
}
