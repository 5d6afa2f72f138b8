//! Node-local ranges: half-open, chunked, sorted.

use crate::support::cluster::split_record;
use crate::support::{Client, Cluster, entity};

fn fill(client: &mut Client, keys: &[&str]) {
    for key in keys {
        client.put(&entity(key), format!("value of {key}").as_bytes());
    }
}

fn keys(client: &mut Client, query: &str) -> Vec<String> {
    let response = client.get(&format!("/v0/entities?{query}"));
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.header("transfer-encoding"), Some("chunked"));
    let records = response.chunks.expect("chunks");
    records
        .iter()
        .map(|chunk| {
            let (key, value) = split_record(chunk);
            assert_eq!(value, format!("value of {key}"));
            key
        })
        .collect()
}

#[test]
fn a_range_is_half_open_and_sorted_with_one_chunk_for_each_record() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    fill(&mut client, &["d", "b", "a", "c", "ab", "B", "ä", "e"]);
    assert_eq!(keys(&mut client, "start=a&end=c"), ["a", "ab", "b"]);
    assert_eq!(keys(&mut client, "start=b&end=d"), ["b", "c"]);
    assert_eq!(keys(&mut client, "start=aa&end=bb"), ["ab", "b"]);
    assert_eq!(keys(&mut client, "end=c&start=a"), ["a", "ab", "b"]);
    assert_eq!(keys(&mut client, "start=A"), ["B", "a", "ab", "b", "c", "d", "e", "ä"]);
    assert_eq!(keys(&mut client, "start=d"), ["d", "e", "ä"]);
    assert!(client.is_open(), "all of it on one connection");
}

#[test]
fn an_empty_range_is_an_empty_body() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    assert_eq!(keys(&mut client, "start=a"), Vec::<String>::new());
    fill(&mut client, &["a", "c"]);
    for query in ["start=b&end=c", "start=d", "start=a&end=a", "start=c&end=a"] {
        assert_eq!(keys(&mut client, query), Vec::<String>::new(), "{query}");
    }
}

#[test]
fn a_range_has_a_start_and_its_end_is_not_empty() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    for query in [
        "",
        "?",
        "?start=",
        "?end=b",
        "?start=a&end=",
        "?start=&end=b",
        "?start=a&start=b",
        "?start=a&end=b&end=c",
        "?start=%",
    ] {
        client.get(&format!("/v0/entities{query}")).problem(400);
        assert!(client.is_open(), "{query} closed the connection");
    }
}

#[test]
fn deleted_records_are_left_out_and_overwritten_ones_come_once() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    fill(&mut client, &["a", "b", "c"]);
    client.put(&entity("a"), b"something else");
    fill(&mut client, &["a"]);
    client.delete(&entity("b"));
    client.delete(&entity("never"));
    assert_eq!(keys(&mut client, "start=a"), ["a", "c"]);
}

#[test]
fn bounds_are_bytes_decoded_like_an_id() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    for id in [b"\x00".as_slice(), b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"a b", b"a+b"] {
        client.put(&entity(id), b"v");
    }
    let chunks = |client: &mut Client, query: &str| client.get(&format!("/v0/entities?{query}")).chunks.unwrap();
    assert_eq!(chunks(&mut client, "start=%80"), [b"\x80\nv".to_vec(), b"\xff\nv".to_vec(), b"\xff\xff\nv".to_vec()]);
    assert_eq!(chunks(&mut client, "start=%00&end=%01"), [b"\x00\nv".to_vec()]);
    assert_eq!(chunks(&mut client, "start=a+b&end=a%2Bb"), [b"a b\nv".to_vec()]);
}

#[test]
fn a_long_range_streams_all_records_in_order() {
    let cluster = Cluster::with(1, &[("KVORUM_DURABILITY", "os")]);
    let mut client = cluster.client(0);
    let key = |number: usize| format!("key-{number:05}");
    let value = vec![b'v'; 2_000];
    for number in (0..5_000).rev() {
        client.put(&entity(key(number)), &value);
    }
    client.put(&entity("big"), &vec![b'x'; 1_000_000]);
    let response = client.get("/v0/entities?start=key-&end=key-99999");
    let chunks = response.chunks.unwrap();
    assert_eq!(chunks.len(), 5_000);
    for (number, chunk) in chunks.iter().enumerate() {
        assert_eq!(chunk[..10], *format!("{}\n", key(number)).as_bytes());
        assert_eq!(chunk.len(), 10 + value.len());
    }
    let big = client.get("/v0/entities?start=big&end=c").chunks.unwrap();
    assert_eq!((big.len(), big[0].len()), (1, 1_000_004), "one record is one chunk however long it is");
}

#[test]
fn an_empty_value_is_a_record_too() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    client.put(&entity("hollow"), b"");
    assert_eq!(cluster.local(0, "a"), [("hollow".to_owned(), String::new())]);
}
