//! How `scenario.json` is laid out: as usual, but each knee with its runs in one line.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// What is nested deeper is in one line: thousands of lines of one figure each would show no more.
const DEPTH_MAX: usize = 4;

/// A document as text.
pub(super) fn laid_out(document: &impl Serialize) -> String {
    let mut out = Vec::new();
    let formatter = ShallowFormatter { pretty: PrettyFormatter::new(), depth: 0 };
    document.serialize(&mut Serializer::with_formatter(&mut out, formatter)).expect("documents have names as keys");
    String::from_utf8(out).expect("JSON is UTF-8") + "\n"
}

/// Forwards to the pretty one down to [`DEPTH_MAX`], and to the compact one below it.
struct ShallowFormatter {
    pretty: PrettyFormatter<'static>,
    depth: usize,
}

macro_rules! by_depth {
    ($self:ident, $name:ident($($argument:expr),*)) => {
        if $self.depth <= DEPTH_MAX {
            $self.pretty.$name($($argument),*)
        } else {
            CompactFormatter.$name($($argument),*)
        }
    };
}

impl Formatter for ShallowFormatter {
    /// Six digits: a report shows three, and no figure repeats to more.
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        let rounded: f64 = format!("{value:.5e}").parse().map_err(io::Error::other)?;
        write!(out, "{rounded}")
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        by_depth!(self, begin_array(out))
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        by_depth!(self, end_array(out))?;
        self.depth -= 1;
        Ok(())
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        by_depth!(self, begin_array_value(out, first))
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        by_depth!(self, end_array_value(out))
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        by_depth!(self, begin_object(out))
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        by_depth!(self, end_object(out))?;
        self.depth -= 1;
        Ok(())
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        by_depth!(self, begin_object_key(out, first))
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        by_depth!(self, begin_object_value(out))
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        by_depth!(self, end_object_value(out))
    }
}

#[cfg(test)]
mod tests {
    use super::laid_out;
    use crate::scenario::ScenarioReport;
    use crate::scenario::result::tests::report;

    #[test]
    fn a_knee_is_in_one_line_and_all_is_read_again() {
        let mut report = report("quorum");
        report.clusters[0].knees[0].points[0].hedges_per_request = Some(0.012345678);
        let text = laid_out(&report);
        let is_knee = |line: &&str| line.contains("\"knee_rate\":40000,") && line.contains("\"rate_asked\":40000,");
        assert_eq!(text.lines().filter(is_knee).count(), 1, "{text}");
        assert!(text.contains("\n  \"commit\": "), "{text}");
        let again: ScenarioReport = serde_json::from_str(&text).unwrap();
        assert_eq!(laid_out(&again), text);
        let point = &mut report.clusters[0].knees[0].points[0];
        assert_eq!(again.clusters[0].knees[0].points[0].hedges_per_request, Some(0.0123457));
        point.hedges_per_request = Some(0.0123457);
        assert_eq!(serde_json::to_value(again).unwrap(), serde_json::to_value(&report).unwrap());
    }
}
