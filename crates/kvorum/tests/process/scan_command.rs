//! `kvorum scan` against real nodes, with a relay between that cuts, damages or holds what they answer.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use serde_json::{Value, json};

use crate::scan::{fill, put};
use crate::support::{Client, Cluster, entity, kvorum, wait_until};

const DONE: i32 = 0;
const USAGE: i32 = 2;
const NOT_ENOUGH: i32 = 3;
const DAMAGED: i32 = 4;

/// Checks the exit code.
#[track_caller]
fn scan(url: &str, arguments: &[&str], code: i32) -> Output {
    let output = kvorum().arg("scan").args(arguments).args(["--url", url]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    output
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn lines(output: &Output) -> Vec<&str> {
    std::str::from_utf8(&output.stdout).expect("it is text").lines().collect()
}

/// Whole frames of one type.
fn frames_of(kind: u8, mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some(length) = bytes.first_chunk::<4>() {
        let (frame, rest) = bytes.split_at(4 + u32::from_be_bytes(*length) as usize);
        frames.extend(Some(frame).filter(|frame| frame[4] == kind));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "the last frame is whole");
    frames
}

/// Keys and values of JSON lines that are text.
fn texts(lines: &[&str]) -> Vec<(String, String)> {
    let pair = |line: &&str| {
        let record: Value = serde_json::from_str(line).expect("each line is JSON");
        let member = |name: &str| record[name].as_str().expect("a text").to_owned();
        (member("key"), member("value"))
    };
    lines.iter().map(pair).collect()
}

/// Passes connections to a node, one after the other. `treat` gets the number of the connection and each piece of its
/// answer, may change it, and says whether to go on. Gives the URL, and how many connections there were.
fn relay(
    node: SocketAddr,
    mut treat: impl FnMut(usize, &mut Vec<u8>) -> bool + Send + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            // An error is an end of the connection like any other.
            let _ended = pass(&mut client.expect("a connection"), node, |piece| treat(number, piece));
        }
    });
    (url, connections)
}

fn pass(client: &mut TcpStream, node: SocketAddr, mut treat: impl FnMut(&mut Vec<u8>) -> bool) -> std::io::Result<()> {
    let mut piece = vec![0; 64 * 1024];
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let got = client.read(&mut piece)?;
        request.extend_from_slice(&piece[..got]);
        if got == 0 {
            return Ok(());
        }
    }
    let mut server = TcpStream::connect(node)?;
    server.write_all(&request)?;
    loop {
        let got = server.read(&mut piece)?;
        let mut answer = piece[..got].to_vec();
        let goes_on = treat(&mut answer);
        client.write_all(&answer)?;
        if got == 0 || !goes_on {
            return Ok(());
        }
    }
}

/// 20 MB, more than fits between a node and its client.
fn fill_large(cluster: &Cluster) -> Vec<(String, String)> {
    let value = "v".repeat(4000);
    fill(&mut cluster.client(0), "k", 5000, |key| json!({"op": "put", "key": key, "value": value}));
    (0..5000).map(|number| (format!("k{number:07}"), value.clone())).collect()
}

/// What the command says to add in order to go on.
fn after(output: &Output) -> String {
    let text = stderr(output);
    let (_, token) = text.trim_end().rsplit_once("--after ").unwrap_or_else(|| panic!("no token: {text}"));
    token.to_owned()
}

#[test]
fn all_outputs_have_every_key_in_order_whatever_its_bytes() {
    let cluster = Cluster::start(3);
    let mut client = cluster.client(0);
    fill(&mut client, "k/", 3000, put);
    let mut expected: BTreeMap<Vec<u8>, (Vec<u8>, String)> = (0..3000)
        .map(|number| format!("k/{number:07}"))
        .map(|key| (key.clone().into(), (format!("value of {key}").into(), format!("{key}\tvalue of {key}"))))
        .collect();
    let odd: [(&[u8], &[u8], &str); 4] = [
        (b"odd\ttab", b"a\tb", "odd\\u{9}tab\ta\\u{9}b"),
        (b"odd\nline", b"a\nb\n", "odd\\u{a}line\ta\\u{a}b\\u{a}"),
        (b"odd\xff", b"\xfe\0", "odd\\xff\t\\xfe\\u{0}"),
        ("é".as_bytes(), b"", "é\t"),
    ];
    for (key, value, line) in odd {
        client.put(&entity(key), value);
        expected.insert(key.to_vec(), (value.to_vec(), line.to_owned()));
    }
    let url = cluster.node(1).url();
    let text = scan(&url, &[], DONE);
    assert_eq!(lines(&text), expected.values().map(|(_, line)| line.as_str()).collect::<Vec<_>>());
    let framed = scan(&url, &["-o", "frames"], DONE).stdout;
    let records = frames_of(1, &framed);
    let length: usize = records.iter().map(|record| record.len()).sum();
    assert_eq!((records.len(), length), (expected.len(), framed.len()), "records alone");
    for (frame, (key, (value, _))) in records.iter().zip(&expected) {
        assert!(frame[7..].starts_with(key) && frame.len() == 7 + key.len() + 13 + value.len());
        assert!(frame.ends_with(value));
    }
    let node = client.with("GET", "/v0/scan?prefix=", &[("Accept", "application/vnd.kvorum.frames")], None);
    assert_eq!(frames_of(1, &node.body), records, "as they were received");
    let json = scan(&url, &["-o", "json"], DONE);
    let node = client.get("/v0/scan?prefix=").text();
    let records: Vec<&str> = node.lines().filter(|line| line.contains("\"etag\":")).collect();
    assert_eq!(lines(&json), records, "the lines of the contract");
}

#[test]
fn a_range_a_limit_and_keys_alone() {
    let cluster = Cluster::start(3);
    let mut client = cluster.client(0);
    fill(&mut client, "a", 20, put);
    fill(&mut client, "b", 20, put);
    let url = cluster.node(2).url();
    let keys = |arguments: &[&str]| -> Vec<String> {
        let output = scan(&url, &[arguments, &["--keys-only"]].concat(), DONE);
        lines(&output).into_iter().map(str::to_owned).collect()
    };
    let all = keys(&[]);
    assert_eq!((all.len(), all[39].as_str()), (40, "b0000019"));
    assert_eq!(keys(&["a"]), all[..20]);
    assert_eq!(keys(&["--start", "a0000015"]), all[15..]);
    assert_eq!(keys(&["--start", "a0000015", "--end", "b0000003"]), all[15..23]);
    assert!(keys(&["none"]).is_empty());
    let json = scan(&url, &["b", "--keys-only", "-o", "json", "--limit", "1"], DONE);
    let record: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&record["key"], record.get("value")), (&json!("b0000000"), None));
    let first = scan(&url, &["--keys-only", "--limit", "15", "--ack", "2", "--from", "3"], DONE);
    assert_eq!(lines(&first), all[..15]);
    let more = ["--keys-only", "--limit", "25", "--ack", "2", "--from", "3", "--after", &after(&first)];
    let rest = scan(&url, &more, DONE);
    assert_eq!(lines(&rest), all[15..]);
    let whole = scan(&url, &["--limit", "41"], DONE);
    assert!(lines(&whole).len() == 40 && whole.stderr.is_empty(), "{}", stderr(&whole));
    for wrong in [&["a", "--start", "b"][..], &["--end", "b"], &["--limit", "0"], &["--after", "AAAA"]] {
        scan(&url, wrong, USAGE);
    }
}

#[test]
fn a_value_that_ends_is_shown_with_its_end() {
    let cluster = Cluster::start(1);
    let url = cluster.node(0).url();
    let mut client = cluster.client(0);
    let kept = client.ok("PUT", &format!("{}&ttl=3600", entity("kept")), Some(b"x"));
    let millis: u64 = kept.header("kvorum-expires").expect("it ends").parse().unwrap();
    let ended = client.ok("PUT", &format!("{}&ttl=1", entity("ended")), Some(b"x"));
    assert_eq!(ended.status, 201);
    wait_until("the value has ended", || client.get(&entity("ended")).status == 404);
    let text = scan(&url, &[], DONE);
    let text = lines(&text);
    assert!(text.len() == 1 && text[0].starts_with("kept\tx\texpires 20") && text[0].ends_with('Z'), "{text:?}");
    let json = scan(&url, &["-o", "json"], DONE);
    assert_eq!(serde_json::from_slice::<Value>(&json.stdout).unwrap()["expires_ms"], millis);
}

#[test]
fn connections_that_break_cost_no_key_and_repeat_none() {
    /// Where each connection is cut: in its records, at once, in its head; the last is not.
    const CUTS: [usize; 8] = [900_000, 0, 17, 400_003, 3_000_001, 650_000, 1_000_001, 5_000_000];
    let cluster = Cluster::start(3);
    let expected = fill_large(&cluster);
    let mut past = (0, 0);
    let (url, connections) = relay(cluster.node(0).address, move |connection, piece| {
        if past.0 != connection {
            past = (connection, 0);
        }
        let left = CUTS.get(connection % (CUTS.len() + 1)).map_or(usize::MAX, |cut| cut - past.1);
        piece.truncate(left);
        past.1 += piece.len();
        piece.len() < left
    });
    let json = scan(&url, &["-o", "json"], DONE);
    assert_eq!(texts(&lines(&json)), expected);
    assert_eq!(connections.load(Ordering::Relaxed), CUTS.len() + 1, "all cuts came");
    let limited = scan(&url, &["--limit", "4321"], DONE);
    let printed: Vec<(&str, &str)> = lines(&limited).iter().map(|line| line.split_once('\t').unwrap()).collect();
    assert!(printed.iter().zip(&expected).all(|(found, (key, value))| *found == (key, value)));
    assert_eq!(printed.len(), 4321);
    assert!(connections.load(Ordering::Relaxed) > CUTS.len() + 4);
}

#[test]
fn a_node_that_stays_away_ends_it_with_an_error_that_says_how_to_go_on() {
    let cluster = Cluster::start(3);
    let expected = fill_large(&cluster);
    let mut left: usize = 2_000_000;
    let (url, connections) = relay(cluster.node(0).address, move |_, piece| {
        piece.truncate(left);
        left -= piece.len();
        left > 0
    });
    let first = scan(&url, &["-o", "json"], DAMAGED);
    assert_eq!(connections.load(Ordering::Relaxed), 9);
    assert!(stderr(&first).contains("request to http://"), "{}", stderr(&first));
    let token = stderr(&first).lines().find_map(|line| Some(line.rsplit_once("--after ")?.1.to_owned()));
    let rest = scan(&cluster.node(1).url(), &["-o", "json", "--after", &token.expect("a token")], DONE);
    let both = [texts(&lines(&first)), texts(&lines(&rest))];
    assert!(!both[0].is_empty() && both.concat() == expected);
}

#[test]
fn a_byte_that_changes_on_its_way_is_an_error() {
    let cluster = Cluster::start(3);
    fill(&mut cluster.client(0), "k", 1000, put);
    let mut is_changed = false;
    let (url, _) = relay(cluster.node(0).address, move |_, piece| {
        let place = piece.windows(8).position(|window| window == b"value of").filter(|_| !is_changed);
        if let Some(place) = place {
            is_changed = true;
            piece[place] ^= 1;
        }
        true
    });
    let damaged = scan(&url, &[], DAMAGED);
    assert!(stderr(&damaged).contains("damaged on its way"), "{}", stderr(&damaged));
    assert!(damaged.stdout.is_empty(), "what was held is not printed");
    assert_eq!(lines(&scan(&url, &[], DONE)).len(), 1000, "without the damage");
}

#[test]
fn replicas_that_are_missing_are_told_before_the_scan_and_in_its_middle() {
    let mut cluster = Cluster::start(3);
    let expected = fill_large(&cluster);
    let (hold, held) = sync_channel(1);
    let (release, released) = sync_channel::<()>(1);
    let mut left: usize = 1_000_000;
    let (url, _) = relay(cluster.node(0).address, move |_, piece| {
        let is_behind = left == 0;
        left = left.saturating_sub(piece.len());
        if left == 0 && !is_behind {
            hold.send(()).unwrap();
            released.recv().unwrap();
        }
        true
    });
    let scanning = std::thread::spawn(move || scan(&url, &["-o", "json"], NOT_ENOUGH));
    held.recv().unwrap();
    cluster.kill_at_once(&[1, 2]);
    release.send(()).unwrap();
    let first = scanning.join().expect("it ends by itself");
    let refused = scan(&cluster.node(0).url(), &[], NOT_ENOUGH);
    assert!(stderr(&refused).contains("Not Enough Replicas") && refused.stdout.is_empty(), "{}", stderr(&refused));
    cluster.spawn(1);
    cluster.spawn(2);
    cluster.wait_whole();
    let rest = scan(&cluster.node(2).url(), &["-o", "json", "--after", &after(&first)], DONE);
    let both = [texts(&lines(&first)), texts(&lines(&rest))];
    assert!(!both[0].is_empty() && !both[1].is_empty(), "{} and {}", both[0].len(), both[1].len());
    assert!(both.concat() == expected);
}

#[test]
fn a_partial_scan_names_what_it_left_out() {
    let mut cluster = Cluster::start(5);
    fill(&mut cluster.client(0), "k", 500, put);
    cluster.kill_at_once(&[3, 4]);
    let mut client = cluster.client(0);
    let target = "/v0/scan?prefix=&ack=2&from=3";
    wait_until("the scan is refused", || client.get(target).status == 504);
    let missing = client.get(target).problem(504)["partitions"].clone();
    let url = cluster.node(0).url();
    let partial = scan(&url, &["--ack", "2", "--from", "3", "--partial"], DONE);
    let missing: Vec<&str> = missing.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(stderr(&partial).contains(&missing.join(", ")), "{}", stderr(&partial));
    assert!((1..500).contains(&lines(&partial).len()));
    assert_eq!(lines(&scan(&url, &["--ack", "1", "--from", "3"], DONE)).len(), 500);
}

#[test]
fn a_value_of_the_largest_size_comes_whole() {
    let cluster = Cluster::start(3);
    let large = "v".repeat(8 << 20);
    let mut client = cluster.client(0);
    client.put(&entity("k1"), large.as_bytes());
    client.put(&entity("k2"), b"small");
    let url = cluster.node(2).url();
    assert!(lines(&scan(&url, &[], DONE)) == [&format!("k1\t{large}"), "k2\tsmall"]);
    assert!(scan(&url, &["-o", "frames"], DONE).stdout.len() > large.len());
}

#[test]
fn a_reader_that_has_had_enough_ends_it_without_a_word() {
    let cluster = Cluster::start(1);
    let large = "v".repeat(100_000);
    let mut client: Client = cluster.client(0);
    for number in 0..50 {
        client.put(&entity(format!("k{number}")), large.as_bytes());
    }
    let mut command = kvorum();
    command.args(["scan", "--progress", "--url", &cluster.node(0).url()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    child.stdout.take().unwrap().read_exact(&mut [0; 1000]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
}
