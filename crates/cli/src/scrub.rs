//! `scrub`: has a node verify what it stores, and waits for it.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::args::ScrubArgs;
use crate::entity::ask_json;
use crate::outcome::ExitOutcome;
use crate::output::show;
use crate::printable::printable;

/// Between two looks at how far it is.
const PAUSE: Duration = Duration::from_millis(200);

/// `kvorum scrub`
pub(crate) fn scrub(args: &ScrubArgs) -> Result<ExitOutcome> {
    let before = match state(args)? {
        Ok(before) => before,
        Err(refused) => return Ok(refused),
    };
    let pass = match ask_json(&mut args.server.nodes(), "POST", "/v0/scrub", args.form.output)? {
        Ok(asked) => number(&asked, "pass"),
        Err(refused) => return Ok(refused),
    };
    let mut begun = number(&before, "begun");
    let now = loop {
        let now = match state(args)? {
            Ok(now) => now,
            Err(refused) => return Ok(refused),
        };
        if number(&now, "begun") < begun {
            eprintln!("kvorum: {} was started anew, and the pass is lost: ask again", args.server.url);
            return Ok(ExitOutcome::Refused);
        }
        if number(&now, "ended") >= pass {
            break now;
        }
        begun = number(&now, "begun");
        std::thread::sleep(PAUSE);
    };
    let grown = |name: &str| number(&now, name) - number(&before, name);
    let (damaged, mended) = (grown("damaged"), grown("mended"));
    let (records, trouble) = (grown("records"), now.get("trouble").and_then(Value::as_str));
    let object = json!({"node": args.server.url.as_str(), "records": records, "damaged": damaged, "mended": mended,
        "trouble": trouble});
    let text = format!("{records} records verified, {damaged} damaged, {mended} of them replaced");
    show(args.form.output, &object, &text)?;
    if let Some(trouble) = trouble {
        eprintln!("kvorum: {}", printable(trouble));
        return Ok(ExitOutcome::Refused);
    }
    Ok(if mended < damaged { ExitOutcome::Refused } else { ExitOutcome::Done })
}

/// What the node shows of its scrub.
fn state(args: &ScrubArgs) -> Result<Result<Value, ExitOutcome>> {
    let page = match ask_json(&mut args.server.nodes(), "GET", "/v0/cluster", args.form.output)? {
        Ok(page) => page,
        Err(refused) => return Ok(Err(refused)),
    };
    let nodes = page.get("nodes").and_then(Value::as_array);
    let own = nodes.and_then(|nodes| nodes.iter().find(|node| node.get("state").is_some_and(|state| state == "self")));
    Ok(Ok(own.and_then(|own| own.get("scrub")).context("the node has no scrub: it is an older build")?.clone()))
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}
