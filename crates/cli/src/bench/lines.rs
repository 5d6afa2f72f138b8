//! What `bench` prints while it works, a line each.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};
use kvorum_load::compare::Turn;
use kvorum_load::knee::{Point, Probe, SearchObserver};
use kvorum_load::report::told_ms;
use kvorum_load::run::RunProgress;
use serde_json::{Value, json};

use super::args::ProgressForm;
use crate::printable::printable_lines;

/// A line on stdout. Minutes of work do not end because stdout is closed.
pub(super) fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{}", printable_lines(&line.to_string()));
}

/// The same on stderr.
pub(super) fn warn(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "kvorum: {}", printable_lines(&line.to_string()));
}

/// Prints each probe in a line.
pub(super) struct Lines(pub(super) ProgressForm);

impl SearchObserver for Lines {
    fn probed(&mut self, probe: &Probe, name: Option<&str>) {
        let kind = match name {
            None => "probe",
            Some("knee" | "sustained") => "confirm",
            Some(name) => name,
        };
        match self.0 {
            ProgressForm::Text => say(format_args!("{kind:<7} {}", probe.line())),
            ProgressForm::Json => tell(&json!({
                "step": kind,
                "rate": probe.rate_asked,
                "rate_achieved": probe.rate_achieved,
                "p50_ms": probe.latency_ms.p50,
                "p99_ms": probe.latency_ms.p99,
                "passed": probe.passed,
                "missed": probe.missed,
            })),
        }
    }

    fn scaled(&mut self, point: Point) {
        match self.0 {
            ProgressForm::Text => say(format_args!("closed loop, {:>3} connections: {:.0}/s", point.n, point.rate)),
            ProgressForm::Json => {
                tell(&json!({ "step": "closed loop", "connections": point.n, "rate_achieved": point.rate }));
            }
        }
    }
}

/// Prints each run of a comparison in a line.
pub(super) fn tell_turn(turn: Turn<'_>, form: ProgressForm) {
    let (document, latency) = (turn.document, &turn.document.latency_ms);
    let errors = document.failures();
    match form {
        ProgressForm::Text => say(format_args!(
            "{}{}: {:.0}/s, p50 {}, p99 {}, {errors} errors",
            turn.side,
            turn.number,
            document.rate_achieved,
            told_ms(latency.p50),
            told_ms(latency.p99)
        )),
        ProgressForm::Json => tell(&json!({
            "step": format!("{}{}", turn.side, turn.number),
            "rate_achieved": document.rate_achieved,
            "p50_ms": latency.p50,
            "p99_ms": latency.p99,
            "errors": errors,
        })),
    }
}

/// How far a run is; once a second.
pub(super) fn tell_run(progress: RunProgress, of_s: u64, told_s: &mut Option<u64>) {
    let elapsed_s = progress.elapsed.as_secs();
    if told_s.replace(elapsed_s) != Some(elapsed_s) {
        tell(&json!({ "step": "run", "elapsed_s": elapsed_s, "seconds": of_s, "requests": progress.done }));
    }
}

fn tell(line: &Value) {
    say(format_args!("{line}"));
}

/// A progress bar, which is seen on terminals only.
pub(super) fn bar(length: u64, style: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
    bar
}
