//! `repair`: has a node drive a round of anti-entropy, and waits for its end if asked to.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::args::{RepairArgs, ServerArgs};
use crate::client::{Request, send};
use crate::entity::finish;
use crate::outcome::{Outcome, Unreachable};

/// Between two looks at how far it is.
const POLL: Duration = Duration::from_millis(200);

/// `kvorum repair`
pub(crate) fn repair(args: &RepairArgs) -> Result<Outcome> {
    let server = &args.server;
    let mut answer =
        send(&server.url, server.timeout, &Request { method: "POST", target: "/v0/repair", trace: false, body: b"" })?;
    if answer.status != 202 {
        return finish(answer);
    }
    let unreachable = |cause| Unreachable { url: server.url.to_string(), cause };
    let mut body = Vec::new();
    answer.copy_body(&mut body).map_err(unreachable)?;
    let begun: Value = serde_json::from_slice(&body).map_err(|error| unreachable(error.into()))?;
    let round = number(&begun, "round");
    if !args.wait {
        println!("round {round} of {} will begin; `kvorum repair --wait` would have waited for it", server.url);
        return Ok(Outcome::Done);
    }
    loop {
        let page = look(server)?;
        if number(&page, "driven") >= round {
            clear_progress();
            return Ok(conclude(page.get("last").unwrap_or(&Value::Null)));
        }
        show_progress(page.get("driving").unwrap_or(&Value::Null));
        std::thread::sleep(POLL);
    }
}

fn look(server: &ServerArgs) -> Result<Value> {
    let request = Request { method: "GET", target: "/v0/repair", trace: false, body: b"" };
    let mut answer = send(&server.url, server.timeout, &request)?;
    let unreachable = |cause| Unreachable { url: server.url.to_string(), cause };
    let mut body = Vec::new();
    answer.copy_body(&mut body).map_err(unreachable)?;
    Ok(serde_json::from_slice(&body).map_err(|error| unreachable(error.into()))?)
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// One line that is written over, for people.
fn show_progress(driving: &Value) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let phase = driving.get("phase").and_then(Value::as_str).unwrap_or("waiting");
        let (listed, copied) = (number(driving, "listed"), number(driving, "copied"));
        let _ = write!(err, "\r\x1b[K{phase}: {listed} keys compared one by one, {copied} records copied");
        let _ = err.flush();
    }
}

fn clear_progress() {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K");
    }
}

fn conclude(last: &Value) -> Outcome {
    let seconds = last.get("seconds").and_then(Value::as_f64).unwrap_or_default();
    println!(
        "{} keys differed, {} records copied in {seconds:.1} s; {} of 4096 partitions are proven converged",
        number(last, "differing"),
        number(last, "copied"),
        number(last, "partitions_proven"),
    );
    let missing = last.get("missing").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for node in missing {
        eprintln!("kvorum: {} did not take part", node.as_str().unwrap_or("-"));
    }
    if last.get("clean").and_then(Value::as_bool) == Some(true) {
        return Outcome::Done;
    }
    let unsettled = number(last, "partitions_unsettled");
    if unsettled > 0 {
        eprintln!("kvorum: something is left to differ in {unsettled} partitions: run it again");
    }
    Outcome::NotEnoughReplicas
}
