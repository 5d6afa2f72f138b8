//! `kvorum hot`: the keys and partitions that nodes are asked for most, of all of them together.

use std::cmp::Reverse;
use std::collections::HashMap;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::every_node::{ask_every, tell_troubles};
use crate::outcome::ExitOutcome;
use crate::output::{align, show};
use crate::printable::printable;
use crate::view_args::HotArgs;

/// `kvorum hot`
pub(crate) fn hot(args: &HotArgs) -> Result<ExitOutcome> {
    let urls = args.server.urls();
    let pages = ask_every(urls, args.server.key(), "/v0/hot", args.server.deadline());
    let outcome = tell_troubles(urls, &pages);
    if outcome != ExitOutcome::Done {
        return Ok(outcome);
    }
    let answered: Vec<&Value> = pages.iter().flatten().collect();
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let hot = merged(&answered, limit);
    show(args.form.output, &hot, text(&hot).trim_end())
}

/// One page of all: counts and errors of a key are added by its hash, counts of a partition by its number.
fn merged(pages: &[&Value], limit: usize) -> Value {
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64).unwrap_or_default();
    let mut keys: HashMap<&str, Value> = HashMap::new();
    let mut partitions: Vec<u64> = Vec::new();
    for page in pages {
        for key in page.get("keys").and_then(Value::as_array).into_iter().flatten() {
            let Some(hash) = key.get("hash").and_then(Value::as_str) else { continue };
            keys.entry(hash)
                .and_modify(|known| {
                    for name in ["count", "error"] {
                        let sum = number(known, name).saturating_add(number(key, name));
                        known.as_object_mut().map(|known| known.insert(name.into(), sum.into()));
                    }
                })
                .or_insert_with(|| key.clone());
        }
        let counts = counts(page.get("partitions").and_then(Value::as_str).unwrap_or_default());
        partitions.resize(partitions.len().max(counts.len()), 0);
        partitions.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(count));
    }
    let mut keys: Vec<Value> = keys.into_values().collect();
    keys.sort_by_key(|key| (Reverse(number(key, "count")), key.get("hash").map(ToString::to_string)));
    keys.truncate(limit);
    let requests: u64 = partitions.iter().sum();
    let mut counted: Vec<(usize, u64)> = partitions.into_iter().enumerate().filter(|(_, count)| *count > 0).collect();
    counted.sort_by_key(|(partition, count)| (Reverse(*count), *partition));
    counted.truncate(limit);
    let partitions: Vec<Value> =
        counted.into_iter().map(|(partition, count)| json!({"partition": partition, "count": count})).collect();
    let window_s = pages.iter().map(|page| number(page, "window_s")).max();
    json!({"nodes": pages.len(), "window_s": window_s, "requests": requests, "keys": keys, "partitions": partitions})
}

/// Little-endian numbers of 32 bits; none where the text is something else.
fn counts(base64: &str) -> Vec<u64> {
    let bytes = STANDARD.decode(base64).unwrap_or_default();
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).collect()
}

fn text(hot: &Value) -> String {
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64).unwrap_or_default();
    let (seconds, requests) = (number(hot, "window_s").max(1), number(hot, "requests"));
    let list = |name: &str| hot.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if requests == 0 && list("keys").is_empty() {
        return format!("no key was asked for in the last {seconds} s");
    }
    let rate = |count: u64| format!("{}.{}", count / seconds, count % seconds * 10 / seconds);
    let share = |count: u64| format!("{}", (count * 100).checked_div(requests).unwrap_or_default());
    let head = |names: [&str; 5]| vec![names.map(str::to_owned).to_vec()];
    let key = |key: &Value| {
        let text = |name: &str| key.get(name).and_then(Value::as_str).map(printable);
        let name = text("key").or_else(|| Some(format!("{} (base64)", text("key_base64")?)));
        let (count, error) = (number(key, "count"), number(key, "error"));
        let partition = number(key, "partition").to_string();
        vec![rate(count), rate(error), partition, text("hash").unwrap_or_default(), name.unwrap_or("-".into())]
    };
    let partition = |partition: &Value| {
        let count = number(partition, "count");
        vec![rate(count), share(count), number(partition, "partition").to_string()]
    };
    let keys =
        [head(["requests/s", "less at most", "partition", "hash", "key"]), list("keys").iter().map(key).collect()];
    let heads = vec![["requests/s", "%", "partition"].map(str::to_owned).to_vec()];
    let partitions = [heads, list("partitions").iter().map(partition).collect()];
    let nodes = number(hot, "nodes");
    format!(
        "{} requests/s for keys, in {seconds} s, at {nodes} nodes\n\n{}\n{}",
        rate(requests),
        align(&keys.concat()),
        align(&partitions.concat())
    )
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::{Value, json};

    use super::{merged, text};

    fn page(keys: Value, counts: [u32; 3]) -> Value {
        let partitions = STANDARD.encode(counts.map(u32::to_le_bytes).concat());
        json!({"window_s": 10, "at_ms": 1, "sample": 16, "keys": keys, "partitions": partitions})
    }

    fn key(hash: &str, count: u64) -> Value {
        json!({"key": format!("k{hash}"), "key_base64": null, "hash": hash, "partition": 1, "count": count, "error": 16})
    }

    #[test]
    fn counts_are_added_by_hash_and_by_partition_and_the_hottest_come_first() {
        let pages =
            [page(json!([key("a", 320), key("b", 160)]), [0, 480, 7]), page(json!([key("b", 480)]), [20, 480, 0])];
        let hot = merged(&[&pages[0], &pages[1]], 2);
        let counts: Vec<_> = hot["keys"].as_array().unwrap().iter().map(|key| (&key["hash"], &key["count"])).collect();
        assert_eq!(counts, [(&json!("b"), &json!(640)), (&json!("a"), &json!(320))]);
        assert_eq!(hot["keys"][0]["error"], 32);
        assert_eq!(hot["partitions"], json!([{"partition": 1, "count": 960}, {"partition": 0, "count": 20}]));
        assert_eq!((&hot["requests"], &hot["nodes"], &hot["window_s"]), (&json!(987), &json!(2), &json!(10)));
        let shown = "98.7 requests/s for keys, in 10 s, at 2 nodes\n\n\
                     requests/s  less at most  partition  hash  key\n\
                     64.0        3.2           1          b     kb\n\
                     32.0        1.6           1          a     ka\n\n\
                     requests/s  %   partition\n\
                     96.0        97  1\n\
                     2.0         2   0\n";
        assert_eq!(text(&hot), shown);
    }

    #[test]
    fn pages_with_nothing_in_them_are_said_to_have_nothing() {
        let pages = [json!({"window_s": 10}), json!({"keys": 7, "partitions": "?"})];
        assert_eq!(text(&merged(&[&pages[0], &pages[1]], 5)), "no key was asked for in the last 10 s");
    }
}
