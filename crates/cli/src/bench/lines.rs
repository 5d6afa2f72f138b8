//! What `bench` prints while it works, a line each.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};
use kvorum_load::compare::Turn;
use kvorum_load::knee::{Point, Probe, SearchObserver};
use kvorum_load::report::told_ms;

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
pub(super) struct Lines;

impl SearchObserver for Lines {
    fn probed(&mut self, probe: &Probe, name: Option<&str>) {
        let kind = match name {
            None => "probe",
            Some("knee" | "sustained") => "confirm",
            Some(name) => name,
        };
        say(format_args!("{kind:<7} {}", probe.line()));
    }

    fn scaled(&mut self, point: Point) {
        say(format_args!("closed loop, {:>3} connections: {:.0}/s", point.n, point.rate));
    }
}

/// Prints each run of a comparison in a line.
pub(super) fn tell_turn(turn: Turn<'_>) {
    let (document, latency) = (turn.document, &turn.document.latency_ms);
    let errors = document.failures();
    say(format_args!(
        "{}{}: {:.0}/s, p50 {}, p99 {}, {errors} errors",
        turn.side,
        turn.number,
        document.rate_achieved,
        told_ms(latency.p50),
        told_ms(latency.p99)
    ));
}

/// A progress bar, which is seen on terminals only.
pub(super) fn bar(length: u64, style: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
    bar
}
