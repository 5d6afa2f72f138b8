//! The binary as a process, without the variables of the test run; and a server of canned answers.

#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn kvorum(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KVORUM_")) {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    command
}

pub(crate) fn run(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Answers one connection with these bytes, and hands back the request once `wanted` is in it.
pub(crate) fn canned(answer: &'static str, wanted: &'static str) -> (String, JoinHandle<String>) {
    let (url, listener) = listen();
    (url, std::thread::spawn(move || answer_one(&listener, answer, wanted)))
}

/// Answers a connection with each of these pages of JSON, and hands back what was asked.
pub(crate) fn pages(pages: Vec<Value>) -> (String, JoinHandle<Vec<String>>) {
    let (url, listener) = listen();
    let answer = move |page: Value| {
        let page = page.to_string();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len());
        answer_one(&listener, &answer, "\r\n\r\n")
    };
    (url, std::thread::spawn(move || pages.into_iter().map(answer).collect()))
}

pub(crate) fn listen() -> (String, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (format!("http://{}", listener.local_addr().unwrap()), listener)
}

fn answer_one(listener: &TcpListener, answer: &str, wanted: &str) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let mut asked = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&asked).contains(wanted) {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "asked only {}", String::from_utf8_lossy(&asked));
        asked.extend_from_slice(buffer.get(..read).unwrap());
    }
    stream.write_all(answer.as_bytes()).unwrap();
    String::from_utf8(asked).unwrap()
}
