//! Clients that scan while something happens to the nodes, and what is checked of each answer.
//!
//! Among the keys that all clients fight for are *steady* ones, which nobody changes. A key of one write is steady once
//! it is acknowledged. What a scan says of a shared key is a read of that key, at some moment of the scan.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::Cluster;
use super::http::{Client, encode, request};
use super::load::{SHARED, Seen, while_clients_work};
use super::random::Random;

const SCANNERS: usize = 2;
/// Steady keys for each shared key, behind it.
const STEADY: usize = 100;
/// So that all steady keys take several pages.
const STEADY_BYTES: usize = 300;

/// What scans have shown.
pub struct Scans<'a> {
    seen: &'a Seen,
    steady: BTreeMap<String, String>,
    /// How many ended how.
    pub ends: Mutex<BTreeMap<ScanEnd, u64>>,
    /// Records of all of them.
    pub records: AtomicU64,
}

/// How a scan ended. Only one that is complete proves anything of what is behind its last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScanEnd {
    Complete,
    /// With a trailer that says that something is missing.
    Incomplete,
    /// Without a trailer.
    Broken,
    /// With this status, instead of a scan.
    Refused(u16),
    Unanswered,
}

/// What came of one scan.
#[derive(Default)]
struct Scanned {
    /// Keys and values, in the order in which they came.
    records: Vec<(String, String)>,
    /// Of the trailer, if there is one.
    is_complete: Option<bool>,
}

impl Scanned {
    /// Takes the lines of a body, whole or broken off.
    fn of(body: &[u8]) -> Self {
        let mut scanned = Self::default();
        let lines = body.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        for line in lines {
            let line: Value = serde_json::from_slice(line).expect("each line is JSON");
            assert_eq!(scanned.is_complete, None, "something follows the trailer: {line}");
            if let Some(key) = line["key"].as_str() {
                let value = line["value"].as_str().expect("a value that is text");
                scanned.records.push((key.to_owned(), value.to_owned()));
            } else if let Some(is_complete) = line["complete"].as_bool() {
                assert_eq!(line["count"], scanned.records.len(), "{line}");
                scanned.is_complete = Some(is_complete);
            } else {
                assert!(line["mark"].is_string(), "neither record, mark nor trailer: {line}");
            }
        }
        scanned
    }

    /// Whether the scan has passed this key: it would have been there.
    fn has_passed(&self, key: &str) -> bool {
        self.is_complete == Some(true) || self.records.last().is_some_and(|(last, _)| key <= last.as_str())
    }

    fn value(&self, key: &str) -> Option<&str> {
        let place = self.records.binary_search_by_key(&key, |(key, _)| key).ok()?;
        Some(&self.records[place].1)
    }

    /// What is wrong: keys out of order or twice, or a key that nobody changed without its value.
    fn violation<'a>(&self, unchanged: impl Iterator<Item = (&'a str, &'a str)>) -> Option<String> {
        if let Some(pair) = self.records.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Some(format!("{} is followed by {}", pair[0].0, pair[1].0));
        }
        let mut passed = unchanged.filter(|(key, _)| self.has_passed(key));
        let (key, value) = passed.find(|(key, value)| self.value(key) != Some(value))?;
        Some(format!("{key} has {:?} instead of {value:?}", self.value(key)))
    }
}

impl<'a> Scans<'a> {
    /// Writes the steady keys.
    pub fn prepare(seen: &'a Seen, cluster: &Cluster) -> Self {
        let value = |number: usize| format!("{number:0STEADY_BYTES$}");
        let keys = (0..SHARED).flat_map(|slot| (0..STEADY).map(move |number| format!("shared-{slot}/{number:03}")));
        let steady: BTreeMap<String, String> = keys.enumerate().map(|(number, key)| (key, value(number))).collect();
        let lines = steady.iter().map(|(key, value)| format!("{}\n", json!({"op": "put", "key": key, "value": value})));
        for part in lines.collect::<Vec<_>>().chunks(1000) {
            let answer = cluster.client(0).ok("POST", "/v0/batch", Some(part.concat().as_bytes()));
            let written = answer.text().lines().filter(|line| line.contains("\"status\":201")).count();
            assert_eq!(written, part.len(), "{answer:?}");
        }
        Self { seen, steady, ends: Mutex::default(), records: AtomicU64::new(0) }
    }

    /// Lets clients scan through the nodes at `addresses` while `disturb` does its thing, then stops them.
    pub fn under_scans<T>(
        &self,
        addresses: &[SocketAddr],
        timeout: Duration,
        random: &mut Random,
        disturb: impl FnOnce() -> T,
    ) -> T {
        let work = |seed, is_over: &dyn Fn() -> bool| {
            let mut random = Random::new(seed);
            while !is_over() {
                let address = addresses[random.below(addresses.len() as u64) as usize];
                let end = self.scan(&mut Client::new(address).timeout(timeout), &mut random);
                *self.ends.lock().unwrap().entry(end).or_default() += 1;
                if matches!(end, ScanEnd::Refused(_) | ScanEnd::Unanswered) {
                    // The node, or others, may be dead for a while.
                    thread::park_timeout(Duration::from_millis(10));
                }
            }
        };
        while_clients_work(SCANNERS, random, work, disturb)
    }

    /// One scan: of all shared keys and the steady ones among them, or of a part of those of one write.
    fn scan(&self, client: &mut Client, random: &mut Random) -> ScanEnd {
        let prefix = match random.below(2) {
            0 => "shared-".to_owned(),
            _ => format!("once-{}", 1 + random.below(99)),
        };
        // What is acknowledged before the scan begins does not change while it runs.
        let once = self.seen.acknowledged();
        let start = self.seen.elapsed();
        let body = match receive(client, &prefix) {
            Ok(body) => body,
            Err(status) => return status.map_or(ScanEnd::Unanswered, ScanEnd::Refused),
        };
        let end = self.seen.elapsed();
        let scanned = Scanned::of(&body);
        let once: Vec<(String, String)> =
            once.into_iter().map(|value| (format!("once-{value}"), value.to_string())).collect();
        let unchanged = self.steady.iter().chain(once.iter().map(|(key, value)| (key, value)));
        let unchanged = unchanged.map(|(key, value)| (key.as_str(), value.as_str()));
        let violation = scanned.violation(unchanged.filter(|(key, _)| key.starts_with(&prefix)));
        assert_eq!(
            violation, None,
            "a scan of {prefix} from {start:?} to {end:?}, complete: {:?}",
            scanned.is_complete
        );
        if prefix == "shared-" {
            for (slot, key) in (0..SHARED).map(|slot| (slot, format!("shared-{slot}"))) {
                if scanned.has_passed(&key) {
                    self.seen.note_value(slot, start..end, scanned.value(&key));
                }
            }
        }
        self.records.fetch_add(scanned.records.len() as u64, Ordering::Relaxed);
        match scanned.is_complete {
            Some(true) => ScanEnd::Complete,
            Some(false) => ScanEnd::Incomplete,
            None => ScanEnd::Broken,
        }
    }
}

/// What came of the body before it ended or broke off. If the scan did not begin, the status, if there is one.
fn receive(client: &mut Client, prefix: &str) -> Result<Vec<u8>, Option<u16>> {
    let target = format!("/v0/scan?prefix={}", encode(prefix.as_bytes()));
    client.write(&request("GET", &target, &[], None)).map_err(|_| None)?;
    let head = client.head().map_err(|_| None)?;
    assert!(matches!(head.status, 200 | 503 | 504), "{head:?}");
    if head.status != 200 {
        return Err(Some(head.status));
    }
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = client.chunk() {
        body.extend(chunk);
    }
    Ok(body)
}

mod tests {
    use super::Scanned;

    const A: &str = "{\"key\":\"a\",\"value\":\"1\"}\n";
    const B: &str = "{\"mark\":\"x\"}\n{\"key\":\"b\",\"value\":\"2\"}\n";
    const END: &str = "{\"complete\":true,\"count\":2}\n";

    fn violation(lines: &[&str]) -> Option<String> {
        Scanned::of(lines.concat().as_bytes()).violation([("a", "1"), ("b", "2")].into_iter())
    }

    #[test]
    fn a_scan_that_ends_early_proves_what_it_has_passed() {
        assert_eq!(violation(&[A, B, END]), None);
        for broken in [&[A, "{\"key\":\"b\""][..], &[A], &[]] {
            assert_eq!(violation(broken), None, "{broken:?}");
        }
        assert_eq!(violation(&[A, &END.replace("true", "false").replace('2', "1")]), None);
    }

    #[test]
    fn a_key_that_is_missing_or_doubled_or_has_another_value_is_found() {
        let single = END.replace('2', "1");
        for bad in [&[A, &single][..], &[B, &single], &[B], &[A, A, B], &[B, A], &[A, &B.replace('2', "3"), END]] {
            assert!(violation(bad).is_some(), "{bad:?}");
        }
    }
}
