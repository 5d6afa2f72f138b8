//! Lines of the audit: JSON, each with the SHA-256 of the one before, so that a changed or missing line is found.
//!
//! A line never has a key or a value of the store in it. The name of a key is there as its HMAC under a secret of the
//! node: with the secret a key can be looked for, and none can be read.

use std::io::BufRead;

use serde::{Deserialize, Serialize};

use crate::hash::Digest256;

/// Longest line that is verified.
pub const AUDIT_LINE_BYTES_MAX: usize = 4096;

/// What happened. Members of JSON, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEvent {
    /// RFC 3339, in UTC, with milliseconds.
    pub time: String,
    /// URL of the node.
    pub node: String,
    /// Of the request; empty where there is none.
    pub request_id: String,
    /// Name of the principal; empty where the request showed no valid key.
    pub principal: String,
    /// Of the client or peer.
    pub address: String,
    /// What was tried: `PUT /v0/entity`, `reload`, `peer`.
    pub action: String,
    /// How it ended: a status, or a word with what was wrong or what changed.
    pub outcome: String,
    /// HMAC of the key's name, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

#[derive(Serialize)]
struct LineOut<'a> {
    #[serde(flatten)]
    event: &'a AuditEvent,
    prev: String,
}

#[derive(Deserialize)]
struct LineIn {
    #[serde(flatten)]
    _event: AuditEvent,
    prev: String,
}

/// A moment as RFC 3339 has it, in UTC, with milliseconds. `None`: RFC 3339 has no such year.
#[must_use]
pub fn timestamp(unix_ms: u64) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(i64::try_from(unix_ms).ok()?).ok()?;
    Some(format!("{time:.3}"))
}

/// Makes lines that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct AuditChain {
    prev: Digest256,
}

impl AuditChain {
    /// After the last line of a file, without its end of line. `None`: the first line ever.
    #[must_use]
    pub fn after(last: Option<&[u8]>) -> Self {
        Self { prev: Digest256::of(last.unwrap_or_default()) }
    }

    /// The next line, without an end of line.
    #[must_use]
    pub fn line(&mut self, event: &AuditEvent) -> String {
        let line = LineOut { event, prev: self.prev.to_string() };
        let line = serde_json::to_string(&line).expect("an event has texts only");
        self.prev = Digest256::of(line.as_bytes());
        line
    }
}

/// Why a file is not a whole audit.
#[derive(Debug, thiserror::Error)]
pub enum AuditBroken {
    /// It cannot be read.
    #[error("line {line}: {error}")]
    Unreadable {
        /// From 1.
        line: usize,
        /// What the system said.
        error: std::io::Error,
    },
    /// Something else stands there.
    #[error("line {line} is no line of an audit")]
    NoLine {
        /// From 1.
        line: usize,
    },
    /// It follows another line than the one before it.
    #[error("line {line} does not follow the line before it: a line was changed, removed or put in")]
    Gap {
        /// From 1.
        line: usize,
    },
}

/// Checks that each line follows the one before it. `chain` is where the file before ended, if it is to be checked that
/// this one goes on there.
///
/// What a file cannot show is that lines are missing at its end.
///
/// # Errors
/// [`AuditBroken`] at the first line that is wrong.
pub fn verify_audit(
    mut lines: impl BufRead,
    mut chain: Option<AuditChain>,
) -> Result<(usize, Option<AuditChain>), AuditBroken> {
    let mut number = 0;
    let mut text = Vec::new();
    loop {
        text.clear();
        let line = number + 1;
        let unreadable = |error| AuditBroken::Unreadable { line, error };
        let limit = AUDIT_LINE_BYTES_MAX as u64 + 1;
        let read = std::io::Read::take(&mut lines, limit).read_until(b'\n', &mut text).map_err(unreadable)?;
        if read == 0 {
            return Ok((number, chain));
        }
        let body = text.strip_suffix(b"\n").ok_or(AuditBroken::NoLine { line })?;
        let LineIn { prev, .. } = serde_json::from_slice(body).map_err(|_| AuditBroken::NoLine { line })?;
        let prev = Digest256::from_hex(&prev).ok_or(AuditBroken::NoLine { line })?;
        if chain.is_some_and(|chain| chain.prev != prev) {
            return Err(AuditBroken::Gap { line });
        }
        chain = Some(AuditChain::after(Some(body)));
        number = line;
    }
}

#[cfg(test)]
mod tests {
    use super::{AUDIT_LINE_BYTES_MAX, AuditBroken, AuditChain, AuditEvent, timestamp, verify_audit};

    fn event(number: usize) -> AuditEvent {
        AuditEvent {
            time: "2026-11-29T12:00:00.000Z".into(),
            node: "http://a:1".into(),
            request_id: number.to_string(),
            principal: "billing \"api\"\n".into(),
            address: "10.0.0.1".into(),
            action: "PUT /v0/entity".into(),
            outcome: "403 write".into(),
            key: String::new(),
        }
    }

    fn lines(count: usize) -> Vec<String> {
        let mut chain = AuditChain::after(None);
        (0..count).map(|number| chain.line(&event(number)) + "\n").collect()
    }

    fn verify(lines: &[String]) -> Result<usize, String> {
        let text = lines.concat();
        verify_audit(text.as_bytes(), None).map(|(count, _)| count).map_err(|error| error.to_string())
    }

    #[test]
    fn a_moment_is_shown_in_utc() {
        assert_eq!(timestamp(1_811_808_000_007).unwrap(), "2027-06-01T00:00:00.007Z");
        assert_eq!(timestamp(u64::MAX), None);
    }

    #[test]
    fn each_line_is_one_line_with_the_digest_of_the_one_before() {
        let all = lines(3);
        assert!(all.iter().all(|line| line.matches('\n').count() == 1 && line.starts_with("{\"time\":")));
        assert_eq!(verify(&all), Ok(3));
        assert_eq!(verify(&all[1..]), Ok(2), "a file may begin where another ended");
        assert_eq!(verify(&[]), Ok(0));
    }

    #[test]
    fn a_line_that_was_changed_removed_put_in_or_cut_is_found() {
        let all = lines(5);
        let changed = |at: usize, from: &str, to: &str| {
            let mut lines = all.clone();
            lines[at] = lines[at].replacen(from, to, 1);
            lines
        };
        let gap = |line: usize| Err(AuditBroken::Gap { line }.to_string());
        let none = |line: usize| Err(AuditBroken::NoLine { line }.to_string());
        assert_eq!(verify(&changed(2, "403", "200")), gap(4));
        assert_eq!(verify(&changed(2, "\",", "\", ")), gap(4), "a space is a change");
        assert_eq!(verify(&[&all[..1], &all[2..]].concat()), gap(2));
        assert_eq!(verify(&[&all[..2], &all[..1], &all[2..]].concat()), gap(3));
        assert_eq!(verify(&changed(4, "\n", "")), none(5));
        assert_eq!(verify(&changed(1, "prev", "last")), none(2));
        assert_eq!(verify(&["x".repeat(2 * AUDIT_LINE_BYTES_MAX)]), none(1));
    }

    #[test]
    fn a_chain_goes_on_in_the_next_file() {
        let all = lines(4).concat();
        let (first, second) = all.split_at(all.len() / 2);
        let (count, chain) = verify_audit(first.as_bytes(), None).unwrap();
        assert_eq!((count, verify_audit(second.as_bytes(), chain).unwrap().0), (2, 2));
        let last = first.lines().next_back().map(str::as_bytes);
        let mut chain = AuditChain::after(last);
        assert_eq!(chain.line(&event(2)), second.lines().next().unwrap());
        let other = Some(AuditChain::after(None));
        assert!(matches!(verify_audit(second.as_bytes(), other), Err(AuditBroken::Gap { line: 1 })));
    }
}
