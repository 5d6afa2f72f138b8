//! `repair`: has a node drive a round of anti-entropy, and waits for its end if asked to.

use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::args::RepairArgs;
use crate::entity::ask_json;
use crate::outcome::ExitOutcome;
use crate::output::{OutputForm, show};
use crate::printable::printable;

/// Between two looks at how far it is.
const POLL: Duration = Duration::from_millis(200);
/// The bar's length.
const BAR: u64 = 1000;

/// `kvorum repair`
pub(crate) fn repair(args: &RepairArgs) -> Result<ExitOutcome> {
    let form = args.form.output;
    let mut nodes = args.server.nodes();
    let round = match ask_json(&mut nodes, "POST", "/v0/repair", form)? {
        Ok(begun) => number(&begun, "round"),
        Err(refused) => return Ok(refused),
    };
    // The round is that node's.
    let mut nodes = nodes.only_current();
    if !args.wait {
        let node = nodes.current().as_str();
        let text = format!("round {round} of {node} will begin; `kvorum repair --wait` would have waited for it");
        return show(form, &json!({"node": node, "round": round}), &text);
    }
    let bar = bar();
    loop {
        let page = match ask_json(&mut nodes, "GET", "/v0/repair", form)? {
            Ok(page) => page,
            Err(refused) => return Ok(refused),
        };
        let driving = page.get("driving").filter(|driving| !driving.is_null());
        if number(&page, "driven") >= round {
            bar.finish_and_clear();
            return conclude(nodes.current().as_str(), page.get("last").unwrap_or(&Value::Null), form);
        }
        let trouble = match page.get("reason").and_then(Value::as_str) {
            _ if number(&page, "wanted") < round => Some("it was started anew, and the round is lost"),
            reason => reason.filter(|_| driving.is_none()),
        };
        if let Some(trouble) = trouble {
            bar.finish_and_clear();
            eprintln!("kvorum: {} drives no round: {}", nodes.current(), printable(trouble));
            return Ok(ExitOutcome::Refused);
        }
        let (full, text) = progress(driving);
        bar.set_position(full);
        bar.set_message(text);
        std::thread::sleep(POLL);
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// A bar over all steps of a round, which is seen on terminals only.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(BAR);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {percent}%  {msg}").expect("a valid template"));
    bar
}

/// How much of the bar is full, and the text beside it.
fn progress(driving: Option<&Value>) -> (u64, String) {
    let Some(driving) = driving else { return (0, "waiting for the round to begin".to_owned()) };
    let phase = driving.get("phase").and_then(Value::as_str).unwrap_or("-");
    let (step, steps) = (number(driving, "step"), number(driving, "steps"));
    let share = driving.get("share").and_then(Value::as_f64).unwrap_or_default().clamp(0.0, 1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "0 to BAR"
    )]
    let within = (share * BAR as f64) as u64;
    let full = (step.saturating_sub(1) * BAR + within).checked_div(steps).unwrap_or_default().min(BAR);
    let (listed, copied) = (number(driving, "listed"), number(driving, "copied"));
    let phase = printable(phase);
    (full, format!("step {step} of {steps}, {phase}: {listed} keys compared one by one, {copied} records copied"))
}

fn conclude(node: &str, last: &Value, form: OutputForm) -> Result<ExitOutcome> {
    let seconds = last.get("seconds").and_then(Value::as_f64).unwrap_or_default();
    let text = format!(
        "{} keys differed, {} records copied in {seconds:.1} s; {} of 4096 partitions are proven converged",
        number(last, "differing"),
        number(last, "copied"),
        number(last, "partitions_proven"),
    );
    let mut object = last.as_object().cloned().unwrap_or_default();
    object.insert("node".to_owned(), node.into());
    show(form, &Value::Object(object), &text)?;
    let missing = last.get("missing").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for node in missing {
        let node = printable(node.as_str().unwrap_or("-"));
        eprintln!("kvorum: {node} did not take part; `kvorum status --url {node}` says why, if it is up");
    }
    if last.get("clean").and_then(Value::as_bool) == Some(true) {
        return Ok(ExitOutcome::Done);
    }
    if last.get("stopped").and_then(Value::as_bool) == Some(true) {
        eprintln!("kvorum: an operator stopped the round before its end");
    }
    let unsettled = number(last, "partitions_unsettled");
    if unsettled > 0 {
        eprintln!("kvorum: something is left to differ in {unsettled} partitions: run it again");
    }
    Ok(ExitOutcome::NotEnoughReplicas)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::progress;

    #[test]
    fn the_bar_fills_with_the_steps_and_the_share_of_the_one_under_way() {
        assert_eq!(progress(None), (0, "waiting for the round to begin".to_owned()));
        let mut driving = json!({"round": "0", "phase": "copy", "step": 4, "steps": 5, "share": 0.5,
            "listed": 1200, "copied": 34});
        let text = "step 4 of 5, copy: 1200 keys compared one by one, 34 records copied".to_owned();
        assert_eq!(progress(Some(&driving)), (700, text.clone()));
        driving["share"] = json!(null);
        assert_eq!(progress(Some(&driving)), (600, text.clone()), "where nobody knows how much there is");
        driving["share"] = json!(7);
        assert_eq!(progress(Some(&driving)), (800, text));
        assert_eq!(progress(Some(&json!({}))).0, 0, "an older node says nothing of steps");
    }
}
