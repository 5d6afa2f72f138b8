//! `status`: the cluster as one node sees it, as a table for people.
//!
//! Members unknown to this build are ignored, missing ones are shown as `-`: a client may be older or newer than its
//! node.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use kvorum_config::node_url;

use crate::args::StatusArgs;
use crate::client::{ClientRequest, ResponseBounds, send};
use crate::entity::ask_json;
use crate::node_args::ConnectionArgs;
use crate::outcome::ExitOutcome;
use crate::output::{align, show};
use crate::printable::printable;

/// Of a data directory that are shown.
const DIRECTORY_DIGITS: usize = 8;

const REBUILDING: &str = "\
  This node may have lost writes that it had acknowledged. It answers, but counts for no quorum.
  To proceed: stop it, put back its complete data directory as it was when it last ran (not an older
  copy) and start it again. If that data is gone, leave all nodes running: rounds of anti-entropy give it
  back what the others have, and then its vote. Meanwhile, at `ack` = a majority, the others serve without it.";

/// Of another node's page.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const PAGE_BYTES_MAX: u64 = 1 << 20;

/// `kvorum status`
pub(crate) fn status(args: &StatusArgs) -> Result<ExitOutcome> {
    let form = args.form.output;
    let mut cluster = match ask_json(&mut args.server.nodes(), "GET", "/v0/cluster", form)? {
        Ok(cluster) => cluster,
        Err(refused) => return Ok(refused),
    };
    let others = other_keys(&args.server.connection, &cluster);
    let others_text = others.iter().map(|url| format!("\n{url} has another file of keys than this node\n"));
    let text = table(&cluster) + &others_text.collect::<String>();
    if let Some(members) = cluster.as_object_mut() {
        members.insert("other_keys".to_owned(), others.into());
    }
    show(form, &cluster, text.trim_end_matches('\n'))
}

/// The nodes whose file of keys is another than this node's: a key may be good at one and not at the other.
fn other_keys(args: &ConnectionArgs, cluster: &Value) -> Vec<String> {
    let Some(own) = cluster.get("auth_digest").and_then(Value::as_str) else { return Vec::new() };
    let digest_of = |url: &str| {
        let url = node_url(url).ok()?;
        let key = args.key_file.as_ref();
        let request = ClientRequest { key, ..ClientRequest::of("GET", "/v0/cluster") };
        let deadline = Instant::now() + args.timeout.min(ANSWER_MAX);
        let bounds = ResponseBounds::Whole { deadline, bytes_max: PAGE_BYTES_MAX };
        let mut answer = send(&url, bounds, &request).ok()?;
        let mut body = Vec::new();
        answer.copy_body(&mut body).ok()?;
        let page: Value = serde_json::from_slice(&body).ok()?;
        // A node that refuses the key that this one takes has another file as well.
        Some(page.get("auth_digest").and_then(Value::as_str).unwrap_or("none, or none with this key").to_owned())
    };
    let nodes = cluster.get("nodes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let others = nodes.iter().filter(|node| text(node, "state") != "self").map(|node| text(node, "url"));
    others.filter_map(|url| digest_of(&url).filter(|digest| digest != own).map(|_| url)).collect()
}

fn text(value: &Value, name: &str) -> String {
    match value.get(name) {
        None | Some(Value::Null) => "-".into(),
        Some(Value::String(text)) => printable(text),
        Some(other) => printable(&other.to_string()),
    }
}

fn table(cluster: &Value) -> String {
    let ready = match cluster.get("ready").and_then(Value::as_bool) {
        Some(true) => "ready".into(),
        _ => format!("not ready: {}", text(cluster, "reason")),
    };
    let mut out = format!(
        "{} is {ready}, version {}\ncluster {}, layout {}, configuration {}\n\n",
        text(cluster, "node"),
        text(cluster, "version"),
        text(cluster, "cluster"),
        text(cluster, "layout_version"),
        text(cluster, "configuration"),
    );
    if cluster.get("insecure").and_then(Value::as_bool) == Some(true) {
        out.push_str("INSECURE: whoever reaches this node's port may do everything\n\n");
    }
    let columns =
        ["url", "state", "directory", "zone", "weight", "partitions_primary", "partitions", "latency_ms", "hints"];
    let heads = ["node", "state", "directory", "zone", "weight", "primary", "partitions", "latency, ms", "hints"];
    let nodes = cluster.get("nodes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let cell = |node: &Value, name| match name {
        "directory" => last_digits(&text(node, name)).to_owned(),
        _ => text(node, name),
    };
    rows.extend(nodes.iter().map(|node| columns.map(|name| cell(node, name)).to_vec()));
    out.push_str(&align(&rows));
    for node in nodes {
        let why = text(node, "reason");
        if why != "-" {
            out.push_str(&format!("\n{}: {why}\n", text(node, "url")));
        }
        let unscannable = text(node, "unscannable");
        if unscannable != "-" {
            out.push_str(&format!("\n{} cannot be scanned: {unscannable}\n", text(node, "url")));
        }
        let rebuilding = text(node, "rebuilding");
        if rebuilding != "-" || text(node, "state") == "rebuilding" {
            out.push_str(&format!("\n{} is rebuilding: {rebuilding}\n{REBUILDING}\n", text(node, "url")));
        }
    }
    out
}

/// Enough of a directory's number to tell it from the one before. The first digits of one that an older build has made
/// are zeros.
fn last_digits(number: &str) -> &str {
    number.char_indices().rev().nth(DIRECTORY_DIGITS - 1).and_then(|(at, _)| number.get(at..)).unwrap_or(number)
}

#[cfg(test)]
mod tests {
    #![allow(missing_docs)]

    use serde_json::json;

    use super::table;

    #[test]
    fn the_table_has_a_line_per_node_and_says_how_to_proceed_with_one_that_lost_data() {
        let cluster = json!({"cluster": "c1", "configuration": "d1", "layout_version": 1, "node": "http://a:1",
            "version": "0.1.0", "ready": true, "reason": null, "news": [1], "nodes": [
                {"url": "http://a:1", "state": "self", "directory": "000aa345678", "zone": null, "weight": 1,
                 "partitions_primary": 2048, "partitions": 4096, "latency_ms": null, "reason": null, "rebuilding": null},
                {"url": "http://bb:1", "state": "rebuilding", "directory": "bb", "zone": "north", "weight": 2,
                 "partitions_primary": 2048, "partitions": 4096, "latency_ms": 0.2, "hints": 17, "reason": null,
                 "rebuilding": "its directory is empty", "more": {}}]});
        let text = table(&cluster);
        let expected = "http://a:1 is ready, version 0.1.0\ncluster c1, layout 1, configuration d1\n\n\
             node         state       directory  zone   weight  primary  partitions  latency, ms  hints\n\
             http://a:1   self        aa345678   -      1       2048     4096        -            -\n\
             http://bb:1  rebuilding  bb         north  2       2048     4096        0.2          17\n\n\
             http://bb:1 is rebuilding: its directory is empty\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("To proceed: "), "{text}");
    }

    #[test]
    fn a_node_that_cannot_be_scanned_is_named() {
        let text =
            table(&json!({"nodes": [{"url": "http://a:1", "unscannable": "stored data is damaged; rebuild it"}]}));
        assert!(text.contains("\nhttp://a:1 cannot be scanned: stored data is damaged; rebuild it\n"), "{text}");
    }

    #[test]
    fn an_answer_with_nothing_known_in_it_is_still_shown() {
        assert!(table(&json!({})).starts_with("- is not ready: -, version -\n"));
    }
}
