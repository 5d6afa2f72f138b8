//! Requests as bytes.

use std::io::Write;
use std::str::FromStr;

use super::keys::KEYS_MAX;
use super::mix::ClientOperation;
use super::values::Values;
use crate::random::Random;
use crate::target::Target;

/// Longest range and scan, in keys, as in YCSB's workload E.
const RANGE_KEYS_MAX: u64 = 100;

/// Where a store keeps a key: a path with `{key}` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    before: String,
    after: String,
}

impl Default for Api {
    fn default() -> Self {
        Self { before: "/v0/entity?id=".into(), after: String::new() }
    }
}

impl FromStr for Api {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (before, after) = text.split_once("{key}").unwrap_or((text, ""));
        if !text.starts_with('/') || text.bytes().any(|byte| byte <= b' ' || byte >= 127) || after.contains("{key}") {
            return Err(format!("`{text}` is not a path like /v0/entity?id={{key}}"));
        }
        // Without a key every request is the same.
        let before = if text.contains("{key}") { before.to_owned() } else { format!("{before}\0") };
        Ok(Self { before, after: after.to_owned() })
    }
}

/// As on the command line.
impl std::fmt::Display for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.before.strip_suffix('\0') {
            Some(page) => f.write_str(page),
            None => write!(f, "{}{{key}}{}", self.before, self.after),
        }
    }
}

impl Api {
    /// Whether it is kvorum's, which alone has ranges.
    #[must_use]
    pub fn is_own(&self) -> bool {
        *self == Self::default()
    }
}

/// Makes the requests to one target.
#[derive(Debug)]
pub(crate) struct Requests {
    before: String,
    /// False where the path has no place for a key.
    keyed: bool,
    /// From behind the key to behind the last header that they all have.
    after: String,
    range_tail: String,
    /// From behind a scan's limit.
    scan_tail: String,
    /// The head of a batch, but for its length.
    batch_head: String,
}

const BATCH_PATH: &str = "/v0/batch";
const SCAN_PATH: &str = "/v0/scan?start=";
/// How batches and the records of scans are written.
const FRAMES: &str = "application/vnd.kvorum.frames";

/// `?ack=A&from=F` behind a path, as far as they are asked for.
fn quorum(path: &str, ack: Option<u8>, from: Option<u8>) -> String {
    let mut query = String::new();
    for (name, number) in [("ack", ack), ("from", from)] {
        if let Some(number) = number {
            let separator = if path.contains('?') || query.contains('?') { '&' } else { '?' };
            query.push_str(&format!("{separator}{name}={number}"));
        }
    }
    query
}

impl Requests {
    pub(crate) fn new(target: &Target, api: &Api, ack: Option<u8>, from: Option<u8>) -> Self {
        let after = api.after.clone() + &quorum(&format!("{}{}", api.before, api.after), ack, from);
        let batch = format!("POST {BATCH_PATH}{} HTTP/1.1\r\n{}", quorum(BATCH_PATH, ack, from), target.head_lines());
        let tail = format!(" HTTP/1.1\r\n{}", target.head_lines());
        Self {
            keyed: !api.before.ends_with('\0'),
            before: api.before.trim_end_matches('\0').to_owned(),
            after: after + &tail,
            scan_tail: format!("{}{tail}Accept: {FRAMES}\r\n\r\n", quorum(SCAN_PATH, ack, from)),
            range_tail: tail + "\r\n",
            batch_head: batch + &format!("Content-Type: {FRAMES}\r\nContent-Length: "),
        }
    }

    /// The path of a key, for a request of its own.
    pub(crate) fn path(&self, key: u64) -> String {
        let mut path = self.before.clone().into_bytes();
        if self.keyed {
            push_key(&mut path, key);
        }
        path.extend(self.after.split(' ').next().unwrap_or_default().bytes());
        String::from_utf8(path).expect("paths are checked to be ASCII")
    }

    /// Appends the first request of an operation on a key.
    pub(crate) fn begin(
        &self,
        out: &mut Vec<u8>,
        operation: ClientOperation,
        key: u64,
        values: &Values,
        random: &mut Random,
    ) {
        match operation {
            ClientOperation::Get | ClientOperation::Modify => self.plain(out, b"GET ", key),
            ClientOperation::Delete => self.plain(out, b"DELETE ", key),
            ClientOperation::Put | ClientOperation::Insert => self.put(out, key, values),
            ClientOperation::Range => self.range(out, key, 1 + random.below(RANGE_KEYS_MAX)),
            ClientOperation::Scan => self.scan(out, key, 1 + random.below(RANGE_KEYS_MAX)),
        }
    }

    /// Appends a PUT.
    pub(crate) fn put(&self, out: &mut Vec<u8>, key: u64, values: &Values) {
        let value = values.of(key);
        self.head(out, b"PUT ", key);
        write!(out, "Content-Length: {}\r\n\r\n", value.len()).expect("a vector takes everything");
        out.extend_from_slice(value);
    }

    /// Appends a batch with these frames.
    pub(crate) fn batch(&self, out: &mut Vec<u8>, frames: &[u8]) {
        out.extend_from_slice(self.batch_head.as_bytes());
        write!(out, "{}\r\n\r\n", frames.len()).expect("a vector takes everything");
        out.extend_from_slice(frames);
    }

    fn plain(&self, out: &mut Vec<u8>, method: &[u8], key: u64) {
        self.head(out, method, key);
        out.extend_from_slice(b"\r\n");
    }

    fn head(&self, out: &mut Vec<u8>, method: &[u8], key: u64) {
        out.extend_from_slice(method);
        out.extend_from_slice(self.before.as_bytes());
        if self.keyed {
            push_key(out, key);
        }
        out.extend_from_slice(self.after.as_bytes());
    }

    fn range(&self, out: &mut Vec<u8>, key: u64, count: u64) {
        out.extend_from_slice(b"GET /v0/entities?start=");
        push_key(out, key);
        out.extend_from_slice(b"&end=");
        // Beyond, keys would have more digits and another order.
        push_key(out, (key + count).min(KEYS_MAX - 1));
        out.extend_from_slice(self.range_tail.as_bytes());
    }

    fn scan(&self, out: &mut Vec<u8>, key: u64, limit: u64) {
        out.extend_from_slice(b"GET ");
        out.extend_from_slice(SCAN_PATH.as_bytes());
        push_key(out, key);
        write!(out, "&limit={limit}").expect("a vector takes everything");
        out.extend_from_slice(self.scan_tail.as_bytes());
    }
}

/// `key` and eight digits: `key00000042`.
pub(super) fn push_key(out: &mut Vec<u8>, key: u64) {
    let mut text = *b"key00000000";
    let mut rest = key;
    for place in text.iter_mut().skip(3).rev() {
        *place = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
    }
    if rest == 0 {
        out.extend_from_slice(&text);
    } else {
        write!(out, "key{key}").expect("a vector takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::{Api, Requests};
    use crate::random::Random;
    use crate::target::Target;
    use crate::workload::{ClientOperation, ValueSize, Values, Writer};

    fn built(api: &str, quorum: (Option<u8>, Option<u8>), operation: ClientOperation) -> String {
        let target: Target = "http://h:1".parse().unwrap();
        let requests = Requests::new(&target, &api.parse().unwrap(), quorum.0, quorum.1);
        let values = Values::new(ValueSize::Fixed(0), false, Writer::Run);
        let mut out = Vec::new();
        requests.begin(&mut out, operation, 42, &values, &mut Random::new(1));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_are_what_a_server_expects() {
        let own = "/v0/entity?id={key}";
        assert_eq!(own.parse::<Api>().unwrap(), Api::default());
        assert_eq!(
            built(own, (None, None), ClientOperation::Get),
            "GET /v0/entity?id=key00000042 HTTP/1.1\r\nHost: h:1\r\n\r\n"
        );
        assert_eq!(
            built(own, (Some(2), Some(3)), ClientOperation::Put),
            "PUT /v0/entity?id=key00000042&ack=2&from=3 HTTP/1.1\r\nHost: h:1\r\nContent-Length: 0\r\n\r\n"
        );
        let range = built(own, (Some(2), None), ClientOperation::Range);
        assert!(range.starts_with("GET /v0/entities?start=key00000042&end=key00000"), "{range}");
        let scan = built(own, (Some(2), Some(3)), ClientOperation::Scan);
        let (begin, rest) = scan.split_once("&limit=").unwrap();
        let (limit, rest) = rest.split_once('&').unwrap();
        assert_eq!(begin, "GET /v0/scan?start=key00000042");
        assert!((1..=100).contains(&limit.parse().unwrap()), "{limit}");
        let accept = "Accept: application/vnd.kvorum.frames";
        assert_eq!(rest, format!("ack=2&from=3 HTTP/1.1\r\nHost: h:1\r\n{accept}\r\n\r\n"));
    }

    #[test]
    fn a_batch_says_for_all_its_operations_how_many_replicas_must_answer() {
        let target: Target = "http://h:1".parse().unwrap();
        for (ack, from, query) in [(None, None, ""), (None, Some(3), "?from=3"), (Some(1), Some(2), "?ack=1&from=2")] {
            let mut out = Vec::new();
            Requests::new(&target, &Api::default(), ack, from).batch(&mut out, b"frames");
            let head = format!("POST /v0/batch{query} HTTP/1.1\r\nHost: h:1\r\n");
            let tail = "Content-Type: application/vnd.kvorum.frames\r\nContent-Length: 6\r\n\r\nframes";
            assert_eq!(String::from_utf8(out).unwrap(), head + tail);
        }
    }

    #[test]
    fn other_stores_have_other_paths() {
        assert!(
            built("/kv/{key}/value", (None, None), ClientOperation::Delete)
                .starts_with("DELETE /kv/key00000042/value ")
        );
        assert!(built("/kv/{key}", (Some(1), None), ClientOperation::Get).starts_with("GET /kv/key00000042?ack=1 "));
        assert!(built("/", (None, None), ClientOperation::Get).starts_with("GET / HTTP/1.1\r\n"));
        for bad in ["kv/{key}", "/a b", "/{key}{key}", "/\u{e4}"] {
            assert!(bad.parse::<Api>().is_err(), "{bad}");
        }
    }
}
