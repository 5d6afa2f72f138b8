//! What `kvorum scan` prints for a record, in each of its forms.

use std::io::{self, BufWriter, StdoutLock, Write};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use jiff::Timestamp;

use super::frames::{RecordFields, RecordFrame};
use crate::data_args::ScanOutput;
use crate::printable::printable_bytes;

/// Stdout, and how far it is.
pub(super) struct ScanPrinter {
    form: ScanOutput,
    out: BufWriter<StdoutLock<'static>>,
    bar: Option<ProgressBar>,
    pub(super) count: u64,
    bytes: u64,
}

impl ScanPrinter {
    pub(super) fn new(form: ScanOutput, bar: Option<ProgressBar>) -> Self {
        Self { form, out: BufWriter::new(io::stdout().lock()), bar, count: 0, bytes: 0 }
    }

    /// Prints records, all of them by when it returns.
    pub(super) fn print(&mut self, records: &[RecordFrame]) -> Result<()> {
        let (form, out) = (self.form, &mut self.out);
        let mut write = || -> io::Result<()> {
            records.iter().try_for_each(|record| write_record(form, record, out))?;
            out.flush()
        };
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
        .context("stdout")?;
        for record in records {
            let RecordFields { key, value, .. } = record.fields();
            self.count += 1;
            self.bytes += (key.len() + value.unwrap_or_default().len()) as u64;
        }
        if let (Some(bar), Some(last)) = (&self.bar, records.last()) {
            let key = printable_bytes(last.fields().key);
            bar.set_message(format!("{} records, {}, {key}", self.count, HumanBytes(self.bytes)));
            bar.tick();
        }
        Ok(())
    }

    /// Leaves the terminal to what is said next.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A line that shows how far it is, on terminals only.
pub(super) fn progress() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}").expect("a valid template");
    ProgressBar::new_spinner().with_style(style)
}

fn write_record(form: ScanOutput, record: &RecordFrame, out: &mut impl Write) -> io::Result<()> {
    match form {
        ScanOutput::Text => write_text(&record.fields(), out),
        ScanOutput::Json => write_json(&record.fields(), out),
        ScanOutput::Frames => out.write_all(record.bytes()),
    }
}

/// One line, whatever key and value are: a tab in one of them is escaped, so fields are what tabs separate.
fn write_text(record: &RecordFields<'_>, out: &mut impl Write) -> io::Result<()> {
    out.write_all(printable_bytes(record.key).as_bytes())?;
    if let Some(value) = record.value {
        write!(out, "\t{}", printable_bytes(value))?;
    }
    if let Some(expires_ms) = record.expires_ms {
        write!(out, "\texpires {}", date(expires_ms))?;
    }
    out.write_all(b"\n")
}

/// RFC 3339, or milliseconds where the calendar ends before.
fn date(millis: u64) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    time.map_or_else(|| millis.to_string(), |time| time.to_string())
}

/// The line that a node answers with where lines are asked for.
fn write_json(record: &RecordFields<'_>, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"{")?;
    write_member("key", record.key, out)?;
    let (clock, incarnation) = record.version.split_at(8);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    write!(out, ",\"etag\":\"\\\"{}-{}\\\"\"", hex(clock), hex(incarnation))?;
    if let Some(expires_ms) = record.expires_ms {
        write!(out, ",\"expires_ms\":{expires_ms}")?;
    }
    for (name, bytes) in [("content_type", record.content_type), ("value", record.value)] {
        if let Some(bytes) = bytes {
            out.write_all(b",")?;
            write_member(name, bytes, out)?;
        }
    }
    out.write_all(b"}\n")
}

/// `name`, or `name_base64` where the bytes are no text.
fn write_member(name: &str, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            write!(out, "\"{name}\":")?;
            serde_json::to_writer(out, text).map_err(io::Error::from)
        }
        Err(_) => write!(out, "\"{name}_base64\":\"{}\"", STANDARD.encode(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::{RecordFields, write_json, write_text};

    const PLAIN: RecordFields<'_> = RecordFields {
        key: b"a\tb",
        version: &[1, 2, 3, 4, 5, 6, 7, 8, 0x8f, 0x3a, 1, 0xc2],
        expires_ms: None,
        content_type: None,
        value: Some(b"one\ttwo\n\"three\""),
    };
    const ODD: RecordFields<'_> = RecordFields {
        key: b"\xff",
        expires_ms: Some(1_700_000_060_000),
        content_type: Some(b"text/plain"),
        value: Some(b"\xfe"),
        ..PLAIN
    };

    fn text(fields: &RecordFields<'_>) -> String {
        let mut out = Vec::new();
        write_text(fields, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn json(fields: &RecordFields<'_>) -> String {
        let mut out = Vec::new();
        write_json(fields, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_is_a_line_whatever_a_record_has_and_says_when_it_expires() {
        assert_eq!(text(&PLAIN), "a\\u{9}b\tone\\u{9}two\\u{a}\"three\"\n");
        assert_eq!(text(&ODD), "\\xff\t\\xfe\texpires 2023-11-14T22:14:20Z\n");
        assert_eq!(text(&RecordFields { value: None, ..PLAIN }), "a\\u{9}b\n");
        let never = RecordFields { expires_ms: Some(u64::MAX), ..PLAIN };
        assert!(text(&never).ends_with("\texpires 18446744073709551615\n"), "later than the calendar's end");
    }

    #[test]
    fn json_has_the_members_and_all_bytes_of_a_record() {
        let plain = r#"{"key":"a\tb","etag":"\"0102030405060708-8f3a01c2\"","value":"one\ttwo\n\"three\""}"#;
        assert_eq!(json(&PLAIN), format!("{plain}\n"));
        let odd = r#"{"key_base64":"/w==","etag":"\"0102030405060708-8f3a01c2\"","expires_ms":1700000060000,"content_type":"text/plain","value_base64":"/g=="}"#;
        assert_eq!(json(&ODD), format!("{odd}\n"));
    }
}
