//! A console as a child process, asked as its pages ask it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
        command.args(["console", "--url", &urls.join(",")]).args(arguments);
        Self::spawn(command)
    }

    /// That of a `kvorum dev` with three nodes, which end with it.
    pub fn of_dev(base_port: u16, data_dir: &Path) -> Self {
        let mut command = kvorum();
        command.args(["dev", "--base-port", &base_port.to_string(), "--data-dir"]).arg(data_dir);
        command.env("KVORUM_COORDINATOR_DEADLINE", "1s").stderr(Stdio::null());
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find(|line| line.contains("/#")).expect("a console prints its URL");
        // It may print more.
        std::thread::spawn(move || lines.for_each(drop));
        let (address, token) = parts(&url);
        Self { address, token, child }
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

/// The address in a console's URL, and the token in its fragment.
pub fn parts(url: &str) -> (SocketAddr, String) {
    let (address, token) = url.trim().strip_prefix("http://").unwrap().split_once("/#").unwrap();
    (address.parse().unwrap(), token.to_owned())
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
