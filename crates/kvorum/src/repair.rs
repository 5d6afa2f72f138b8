//! `repair`: has a node drive a round of anti-entropy, and waits for its end if asked to.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::args::RepairArgs;
use crate::entity::ask_json;
use crate::outcome::Outcome;

/// Between two looks at how far it is.
const POLL: Duration = Duration::from_millis(200);

/// `kvorum repair`
pub(crate) fn repair(args: &RepairArgs) -> Result<Outcome> {
    let server = &args.server;
    let round = match ask_json(server, "POST", "/v0/repair")? {
        Ok(begun) => number(&begun, "round"),
        Err(refused) => return Ok(refused),
    };
    if !args.wait {
        println!("round {round} of {} will begin; `kvorum repair --wait` would have waited for it", server.url);
        return Ok(Outcome::Done);
    }
    loop {
        let page = match ask_json(server, "GET", "/v0/repair")? {
            Ok(page) => page,
            Err(refused) => return Ok(refused),
        };
        let driving = page.get("driving").filter(|driving| !driving.is_null());
        if number(&page, "driven") >= round {
            clear_progress();
            return Ok(conclude(page.get("last").unwrap_or(&Value::Null)));
        }
        let trouble = match page.get("reason").and_then(Value::as_str) {
            _ if number(&page, "wanted") < round => Some("it was started anew, and does not know of the round"),
            reason => reason.filter(|_| driving.is_none()),
        };
        if let Some(trouble) = trouble {
            clear_progress();
            eprintln!("kvorum: {} drives no round: {trouble}", server.url);
            return Ok(Outcome::Refused);
        }
        show_progress(driving);
        std::thread::sleep(POLL);
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// One line that is written over, for people.
fn show_progress(driving: Option<&Value>) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{}", progress(driving));
        let _ = err.flush();
    }
}

fn progress(driving: Option<&Value>) -> String {
    let Some(driving) = driving else { return "waiting".to_owned() };
    let phase = driving.get("phase").and_then(Value::as_str).unwrap_or("-");
    let (listed, copied) = (number(driving, "listed"), number(driving, "copied"));
    format!("{phase}: {listed} keys compared one by one, {copied} records copied")
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::progress;

    #[test]
    fn the_progress_names_the_phase_and_counts() {
        assert_eq!(progress(None), "waiting");
        let driving = json!({"round": "0", "phase": "copy", "listed": 1200, "copied": 34});
        assert_eq!(progress(Some(&driving)), "copy: 1200 keys compared one by one, 34 records copied");
    }
}
