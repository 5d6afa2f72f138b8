//! `kvorum where`: which nodes hold a key.

use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use serde_json::Value;

use crate::client::percent_encode;
use crate::entity::ask_json;
use crate::outcome::ExitOutcome;
use crate::output::{add_bytes, align, show};
use crate::printable::printable;
use crate::view_args::WhereArgs;

/// `kvorum where`
pub(crate) fn where_is(args: &WhereArgs) -> Result<ExitOutcome> {
    let target = format!("/v0/layout?id={}", percent_encode(args.key.as_bytes()));
    let mut nodes = args.server.nodes();
    let mut page = match ask_json(&mut nodes, "GET", &target, args.form.output)? {
        Ok(page) => page,
        Err(refused) => return Ok(refused),
    };
    let text = text(&page);
    if let Some(object) = page.as_object_mut() {
        add_bytes(object, "key", args.key.as_bytes());
        object.insert("node".into(), nodes.current().as_str().into());
    }
    show(args.form.output, &page, text.trim_end())
}

fn text(page: &Value) -> String {
    let member = |name: &str| match page.get(name) {
        Some(Value::String(text)) => printable(text),
        Some(other) => printable(&other.to_string()),
        None => "-".to_owned(),
    };
    let from = page.get("from").and_then(Value::as_u64).unwrap_or_default();
    let replicas = page.get("replicas").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let row = |(rank, node): (u64, &Value)| {
        let what = if rank <= from { "holds it" } else { "next, for a larger --from" };
        vec![rank.to_string(), printable(node.as_str().unwrap_or("-")), what.to_owned()]
    };
    let rows: Vec<Vec<String>> = (1..).zip(replicas).map(row).collect();
    format!("partition {} of 4096, hash {}\n{}", member("partition"), member("hash"), align(&rows))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::text;

    #[test]
    fn the_first_nodes_hold_a_key_and_the_others_are_next() {
        let page =
            json!({"hash": "00ff00ff00ff00ff", "partition": 17, "from": 1, "replicas": ["http://b:1", "http://a:1"]});
        let expected = "partition 17 of 4096, hash 00ff00ff00ff00ff\n\
                        1  http://b:1  holds it\n\
                        2  http://a:1  next, for a larger --from\n";
        assert_eq!(text(&page), expected);
    }
}
