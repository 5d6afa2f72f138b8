//! A second's figures as text: for a terminal of any width, or for a pipe.

use std::io::{self, Write};

use anyhow::Result;
use jiff::Timestamp;
use rustix::termios::tcgetwinsize;

use super::sample::{ClusterFrame, SecondStats, TopNode};
use crate::output::{align, grouped};
use crate::printable::printable;

/// Columns that give way where a terminal is too narrow, the first of them first.
const GIVE_WAY: [&str; 7] = ["in flight", "other/s", "DELETE/s", "p50", "hints", "p99", "state"];
const COLUMNS: [&str; 12] =
    ["node", "state", "GET/s", "p50", "p99", "PUT/s", "p50", "p99", "DELETE/s", "other/s", "in flight", "hints"];

/// A terminal that shows frames and nothing else, until this is dropped.
pub(super) struct Screen {
    out: io::Stdout,
}

impl Screen {
    /// Another page of the terminal, without a cursor.
    pub(super) fn enter() -> Result<Self> {
        let mut screen = Self { out: io::stdout() };
        screen.write("\x1b[?1049h\x1b[?25l")?;
        Ok(screen)
    }

    pub(super) fn show(&mut self, frame: &ClusterFrame) -> Result<()> {
        let size = tcgetwinsize(&self.out).ok();
        let (width, height) =
            size.map_or((80, 24), |size| (usize::from(size.ws_col).max(20), usize::from(size.ws_row).max(4)));
        let mut page = String::from("\x1b[H");
        for (index, line) in text(frame, Some(width)).iter().take(height - 1).enumerate() {
            // The verdict is what is looked at first.
            let bold = if index == 1 { "\x1b[1m" } else { "" };
            page += &format!("{bold}{line}\x1b[0m\x1b[K\n");
        }
        self.write(&(page + "\x1b[J"))
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.out.write_all(text.as_bytes())?;
        Ok(self.out.flush()?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = self.write("\x1b[?25h\x1b[?1049l");
    }
}

/// Lines no longer than `width`; without one as long as they are.
pub(super) fn text(frame: &ClusterFrame, width: Option<usize>) -> Vec<String> {
    let time = i64::try_from(frame.at_ms).ok().and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok());
    let up = frame.nodes.iter().filter(|node| node.state == "up").count();
    let time = time.map_or_else(|| "-".to_owned(), |time| format!("{time:.0}"));
    let title = format!("{up} of {} nodes up, {time}; times in ms", frame.nodes.len());
    let mut lines = vec![title.chars().take(width.unwrap_or(usize::MAX)).collect()];
    lines.extend(wrapped(&printable(&frame.verdict), width));
    lines.push(String::new());
    lines.extend(table(frame, width));
    let statuses = frame.all.statuses.iter().map(|(status, each)| format!("{} {}/s", printable(status), rate(*each)));
    lines.push(String::new());
    lines.extend(wrapped(&format!("answers: {}", statuses.collect::<Vec<_>>().join(", ")), width));
    for node in &frame.nodes {
        if let Some(trouble) = &node.trouble {
            lines.extend(wrapped(&printable(&format!("{}: {}", node.name, trouble.why)), width));
        }
    }
    lines
}

/// A row for each node and one for all; columns that have no room are left out.
fn table(frame: &ClusterFrame, width: Option<usize>) -> Vec<String> {
    let mut rows = vec![COLUMNS.map(str::to_owned).to_vec()];
    rows.extend(frame.nodes.iter().map(row));
    let hints = frame.nodes.iter().map(|node| node.hints).sum();
    rows.push(cells("all", "", Some(&frame.all), hints));
    let mut give_way = GIVE_WAY.iter();
    loop {
        let lines: Vec<String> = align(&rows).lines().map(str::to_owned).collect();
        let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
        let Some(width) = width.filter(|width| widest > *width) else { return lines };
        let Some(column) = give_way.next() else {
            return lines.into_iter().map(|line| line.chars().take(width).collect()).collect();
        };
        let heads = rows.first().cloned().unwrap_or_default();
        for row in &mut rows {
            let kept = row.drain(..).zip(&heads).filter(|(_, head)| head != column);
            *row = kept.map(|(cell, _)| cell).collect();
        }
    }
}

fn row(node: &TopNode) -> Vec<String> {
    cells(&node.name, node.state, node.stats.as_ref(), node.hints)
}

/// In the order of [`COLUMNS`].
fn cells(name: &str, state: &str, stats: Option<&SecondStats>, hints: u64) -> Vec<String> {
    let of_kind = |kind: &str| {
        let each = stats.and_then(|stats| stats.rates.get(kind));
        each.map_or_else(|| "-".to_owned(), |each| rate(*each))
    };
    let time = |kind: &str, of_1000| {
        let millis = stats.and_then(|stats| stats.quantile_ms(kind, of_1000));
        millis.map_or_else(|| "-".to_owned(), millis_text)
    };
    let in_flight = stats.map_or_else(|| "-".to_owned(), |stats| format!("{:.0}", stats.in_flight));
    let name = printable(name.strip_prefix("http://").unwrap_or(name));
    vec![
        name,
        state.to_owned(),
        of_kind("GET"),
        time("GET", 500),
        time("GET", 990),
        of_kind("PUT"),
        time("PUT", 500),
        time("PUT", 990),
        of_kind("DELETE"),
        of_kind("other"),
        in_flight,
        grouped(hints),
    ]
}

/// A rate: small ones with a digit behind the point.
fn rate(each: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is no less than 0")]
    let whole = each.round() as u64;
    if each > 0.0 && each < 9.95 { format!("{each:.1}") } else { grouped(whole) }
}

/// Three digits that count.
fn millis_text(millis: f64) -> String {
    match millis {
        small if small < 9.995 => format!("{small:.2}"),
        middle if middle < 99.95 => format!("{middle:.1}"),
        large => format!("{large:.0}"),
    }
}

/// Broken between words; a word that has no room is broken as well.
fn wrapped(text: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return vec![text.to_owned()] };
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        while !word.is_empty() {
            let Some(line) = lines.last_mut() else { break };
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            if used + gap + word.len() <= width {
                line.extend(std::iter::repeat_n(' ', gap).chain(word.drain(..)));
            } else if used == 0 {
                line.extend(word.drain(..width));
            } else {
                lines.push(String::new());
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{ClusterFrame, SecondStats, TopNode, millis_text, rate, text};
    use crate::every_node::NodeTrouble;

    fn frame() -> ClusterFrame {
        let stats = || SecondStats {
            rates: BTreeMap::from([("GET", 1234.4), ("PUT", 0.5)]),
            statuses: BTreeMap::from([("200".to_owned(), 1234.4), ("504".to_owned(), 0.5)]),
            ..SecondStats::default()
        };
        let node = |name: &str, state, stats: Option<SecondStats>, trouble| TopNode {
            name: name.to_owned(),
            state,
            trouble,
            stats,
            hints: 0,
            hints_oldest_s: 0.0,
        };
        let silent = NodeTrouble::new("silent", "Connection \u{1b}refused");
        ClusterFrame {
            at_ms: 1_700_000_000_123,
            verdict: "reads and writes at 2/3 work; one more loss stops them; http://10.0.0.2:8080 is silent".into(),
            nodes: vec![
                node("http://10.0.0.1:8080", "up", Some(stats()), None),
                node("http://10.0.0.2:8080", "silent", None, Some(silent)),
            ],
            all: stats(),
        }
    }

    #[test]
    fn a_pipe_gets_every_column_and_what_is_wrong() {
        let expected = "1 of 2 nodes up, 2023-11-14T22:13:20Z; times in ms\n\
            reads and writes at 2/3 work; one more loss stops them; http://10.0.0.2:8080 is silent\n\n\
            node           state   GET/s  p50  p99  PUT/s  p50  p99  DELETE/s  other/s  in flight  hints\n\
            10.0.0.1:8080  up      1,234  -    -    0.5    -    -    -         -        0          0\n\
            10.0.0.2:8080  silent  -      -    -    -      -    -    -         -        -          0\n\
            all                    1,234  -    -    0.5    -    -    -         -        0          0\n\n\
            answers: 200 1,234/s, 504 0.5/s\n\
            http://10.0.0.2:8080: Connection \\u{1b}refused";
        assert_eq!(text(&frame(), None).join("\n"), expected);
    }

    #[test]
    fn no_line_is_longer_than_the_terminal_however_narrow_it_is() {
        for width in 20..120 {
            let lines = text(&frame(), Some(width));
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:#?}");
            let has = |part: &str| lines.iter().any(|line| line.contains(part));
            assert!(has("GET/s") || width < 22, "{width}: what counts most stays: {lines:#?}");
        }
        let narrow = text(&frame(), Some(52));
        assert!(narrow.iter().any(|line| line == "10.0.0.1:8080  up      1,234  -    0.5    -    0"), "{narrow:#?}");
    }

    #[test]
    fn numbers_have_the_digits_that_count() {
        assert_eq!([0.0, 0.04, 9.94, 9.96, 1234.5].map(rate), ["0", "0.0", "9.9", "10", "1,235"]);
        assert_eq!([0.412, 12.34, 345.6].map(millis_text), ["0.41", "12.3", "346"]);
    }
}
