//! Header lines that are written past hyper's map of headers, where answers are gathered.

use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use bytes::BufMut;
use httpdate::HttpDate;
use kvorum_core::Version;

/// What keeps a browser from taking an answer for something else, and from showing it to a page of another origin.
const BROWSER_LINES: &[u8] = b"x-content-type-options: nosniff\r\ncross-origin-resource-policy: same-origin\r\n";
/// A value is a client's, and no page of this node: it runs no script and loads nothing, whatever its type. A proxy may
/// keep it, but not serve it unasked, as it else might by when it was modified and ends.
const VALUE_LINES: &[u8] = b"content-security-policy: sandbox; default-src 'none'\r\ncache-control: no-cache\r\n";
/// The calendar of HTTP ends with the year 9999.
const LAST_MS: u64 = 253_402_300_799_000;

/// Header lines that all answers have, or all about a record. `io.rs` writes them at the end of what hyper writes:
/// through a map of headers they would cost a tenth of a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnswerLines {
    /// The body is a client's, or several.
    pub has_value: bool,
    /// Of the record that the answer is about.
    pub version: Option<Version>,
    /// When its value ends, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

impl AnswerLines {
    /// Of errors and this node's own pages.
    pub(super) const PLAIN: Self = Self { has_value: false, version: None, expires_ms: None };

    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(BROWSER_LINES);
        if let Some(version) = self.version {
            out.extend_from_slice(b"etag: ");
            out.extend_from_slice(&etag(version));
            out.extend_from_slice(b"\r\n");
            if self.has_value {
                write!(out, "last-modified: {}\r\n", http_date(version.hlc.millis())).expect("a vector takes all");
            }
        }
        if let Some(expires_ms) = self.expires_ms {
            write!(out, "expires: {}\r\nkvorum-expires: {expires_ms}\r\n", http_date(expires_ms))
                .expect("a vector takes all");
        }
        if self.has_value {
            out.extend_from_slice(VALUE_LINES);
        }
    }
}

fn http_date(millis: u64) -> HttpDate {
    HttpDate::from(UNIX_EPOCH + Duration::from_millis(millis.min(LAST_MS)))
}

/// The version as an entity tag: the text of its `Display` in quotes, written by hand because every
/// answer has one.
pub(super) fn etag(version: Version) -> [u8; 2 * Version::BYTES + 3] {
    let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
    let digits = version.encode().map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    let (hlc, incarnation) = digits.as_flattened().split_at(16);
    let mut tag = [0; 2 * Version::BYTES + 3];
    let mut rest = tag.as_mut_slice();
    for part in [b"\"", hlc, b"-", incarnation, b"\""] {
        rest.put_slice(part);
    }
    tag
}
