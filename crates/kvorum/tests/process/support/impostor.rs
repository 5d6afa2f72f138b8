//! The test itself as the third node of a cluster of three.

use std::io::Read;
use std::net::{TcpListener, TcpStream};

use bytes::BytesMut;
use kvorum_core::frame::{Frame, Message, NO_EPOCH, encode};
use kvorum_core::node::NodeId;
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::Wanted;
use kvorum_core::repair::RoundId;
use kvorum_core::repair::wire::RoundRequest;
use kvorum_core::{Hlc, Key};

use super::http::Response;
use super::{Client, Cluster, SOON, entity};

/// Two real nodes, and what it takes to pass for the third one.
pub struct Impostor {
    pub cluster: Cluster,
    pub listener: TcpListener,
    /// The headers of a real node's handshake, but for its identity.
    pub hello: Vec<(String, String)>,
}

impl Impostor {
    pub fn new() -> Self {
        // The real third node connects once: without it the two others would not vote.
        let mut cluster = Cluster::with(3, &[("KVORUM_PEER_RECONNECT_DELAY_MAX", "100ms")]);
        cluster.kill(2);
        let listener = TcpListener::bind(cluster.node(2).address).unwrap();
        let mut hello = accept(&listener).1;
        let remembered = hello.iter().find(|(name, _)| name.eq_ignore_ascii_case("kvorum-remembers"));
        let directory = remembered.expect("the third node has connected").1.clone();
        for (name, value) in &mut hello {
            match name.to_ascii_lowercase().as_str() {
                "kvorum-node" => *value = cluster.node(2).url(),
                "kvorum-directory" => value.clone_from(&directory),
                "kvorum-recovered" => *value = "1000000".to_owned(),
                _ => {}
            }
        }
        hello.retain(|(name, _)| name != "Host" && !name.to_ascii_lowercase().starts_with("kvorum-remembers"));
        cluster.wait_answers(0, 2);
        Self { cluster, listener, hello }
    }

    /// The greeting with some of its headers changed, and others added.
    pub fn greeting(&self, changes: &[(&str, &str)]) -> Vec<u8> {
        let mut text = "GET /_peer HTTP/1.1\r\nHost: localhost\r\n".to_owned();
        for (name, value) in &self.hello {
            let change = changes.iter().find(|(changed, _)| changed.eq_ignore_ascii_case(name));
            text.push_str(&format!("{name}: {}\r\n", change.map_or(value.as_str(), |(_, value)| value)));
        }
        let is_there = |name: &str| self.hello.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        for (name, value) in changes.iter().filter(|(name, _)| !is_there(name)) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        format!("{text}\r\n").into_bytes()
    }

    pub fn greet(&self, changes: &[(&str, &str)]) -> (Client, Response) {
        let mut client = self.cluster.client(0);
        client.write(&self.greeting(changes)).unwrap();
        let response = client.receive_any("GET").unwrap();
        (client, response)
    }

    /// A connection that node 0 takes for that of a peer.
    pub fn peer(&self) -> TcpStream {
        let (mut client, response) = self.greet(&[]);
        assert_eq!(response.status, 101, "{response:?}");
        client.stream().unwrap().try_clone().unwrap()
    }

    /// That of the third node.
    pub fn directory(&self) -> &str {
        let found = self.hello.iter().find(|(name, _)| name.eq_ignore_ascii_case("kvorum-directory"));
        &found.expect("every hello has it").1
    }

    /// The wall clock, in milliseconds.
    pub fn wall_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::try_from(since.as_millis()).unwrap()
    }

    /// A ping whose clock is at `hlc`.
    pub fn ping(&self, hlc: u64) -> Vec<u8> {
        self.frame(hlc, Message::Ping { wall_ms: self.wall_ms() })
    }

    /// The begin of a round up to `until`, and its end, which proves everything and gives every vote back.
    pub fn end_of_a_round(&self, until: u64) -> Vec<u8> {
        let page = self.cluster.client(0).get("/v0/cluster").json();
        let nodes = page["nodes"].as_array().unwrap();
        let driver = nodes.iter().position(|node| node["url"] == self.cluster.node(2).url()).unwrap();
        let round = RoundId { until: Hlc::from_raw(until), driver: NodeId(u32::try_from(driver).unwrap()) };
        let all = PartitionSet::all();
        let begin = RoundRequest::Begin { round };
        let end = RoundRequest::End { round, proven: all.clone(), restored: all };
        [begin, end].map(|request| self.frame(until, Message::Repair(request.encode()))).concat()
    }

    /// A question for a key, by the layout of this epoch.
    pub fn question(&self, epoch: u64) -> Vec<u8> {
        let key = Key::new("k".into()).unwrap();
        self.frame_of(epoch, 0, Message::Read { key, wanted: Wanted::Record, non_voting: true })
    }

    fn frame(&self, hlc: u64, message: Message) -> Vec<u8> {
        self.frame_of(NO_EPOCH, hlc, message)
    }

    fn frame_of(&self, epoch: u64, hlc: u64, message: Message) -> Vec<u8> {
        let mut out = BytesMut::new();
        let rest = encode(&Frame { id: 1, epoch, hlc: Hlc::from_raw(hlc), message }, &mut out);
        assert!(rest.is_none(), "it is small");
        out.to_vec()
    }

    #[track_caller]
    pub fn still_serves(&self, what: &str) {
        for index in 0..2 {
            let mut client = self.cluster.client(index);
            client.put(&entity("k"), what.as_bytes());
            assert_eq!(client.value(&entity("k")), what.as_bytes());
        }
    }
}

/// The next handshake that a real node sends to the third, with its headers.
pub fn accept(listener: &TcpListener) -> (TcpStream, Vec<(String, String)>) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        text.push(byte[0]);
    }
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("GET /_peer HTTP/1.1\r\n"), "{text}");
    let split = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    (stream, text.lines().skip(1).filter_map(split).collect())
}

/// Reads until the other side closes.
pub fn is_closed(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut sink = [0; 4_096];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("the connection was not closed: {error}"),
        }
    }
}
