//! A console as a child process, asked as its pages ask it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::{Client, kvorum};
use crate::support::http::Response;

/// `kvorum console`, which ends with this.
pub struct ConsoleProcess {
    child: Child,
    pub address: SocketAddr,
    pub token: String,
}

impl ConsoleProcess {
    /// Starts one for these nodes.
    pub fn start(urls: &[String], arguments: &[&str]) -> Self {
        let mut command = kvorum();
        command.args(["console", "--url", &urls.join(",")]).args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.map_while(Result::ok).find_map(|line| line.trim().strip_prefix("http://").map(str::to_owned));
        let url = url.expect("a console prints its URL");
        let (address, token) = url.split_once("/#").expect("an address, and a token in the fragment");
        Self { address: address.parse().unwrap(), token: token.to_owned(), child }
    }

    /// A connection that shows nothing by itself.
    pub fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// One request with the token.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, body: Option<&[u8]>) -> Response {
        self.client().with(method, path, &[("kvorum-console", &self.token)], body)
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.ask("GET", path, None)
    }

    /// Opens a stream.
    #[track_caller]
    pub fn stream(&self) -> FrameStream {
        let mut client = self.client();
        let head = format!("GET /api/stream HTTP/1.1\r\nHost: localhost\r\nkvorum-console: {}\r\n\r\n", self.token);
        client.write(head.as_bytes()).unwrap();
        let head = client.head().unwrap();
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        FrameStream { client, text: String::new() }
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ConsoleProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The frames of a page.
pub struct FrameStream {
    client: Client,
    text: String,
}

impl FrameStream {
    /// The next one.
    #[track_caller]
    pub fn next(&mut self) -> Value {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let frame = serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
                self.text = rest.to_owned();
                return frame;
            }
            let chunk = self.client.chunk().unwrap().expect("the stream goes on");
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Reads frames until one holds, for at most twenty seconds of them.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..20 {
            last = self.next();
            if holds(&last) {
                return last;
            }
        }
        panic!("{what}: {last}");
    }
}

/// What each node of a frame is.
pub fn states(frame: &Value) -> Vec<&str> {
    frame["nodes"].as_array().unwrap().iter().map(|node| node["state"].as_str().unwrap()).collect()
}
