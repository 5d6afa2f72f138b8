//! kvorum: HTTP/1.1. Two of three replicas must answer, which is also the default of a cluster of three.

use std::io::Write;

use super::{Ending, Protocol};
use crate::error::DriveError;
use crate::plan::Task;

const HEADERS_MAX: usize = 64;

pub(crate) struct Http {
    task: Task,
    /// Behind the key.
    tail: String,
    value_bytes: usize,
}

impl Http {
    pub(crate) fn new(authority: &str, task: Task) -> Self {
        let tail = format!("&ack=2&from=3 HTTP/1.1\r\nHost: {authority}\r\n");
        Self { task, tail, value_bytes: 0 }
    }

    fn ending(&self, status: u16, body_bytes: usize) -> Ending {
        let done = if self.task.writes() {
            (200..300).contains(&status)
        } else {
            status == 200 && body_bytes == self.value_bytes
        };
        if done { Ending::Done } else { Ending::Refused }
    }
}

impl Protocol for Http {
    fn request(&mut self, out: &mut Vec<u8>, key: &[u8], value: &[u8]) -> Result<(), DriveError> {
        self.value_bytes = value.len();
        let method: &[u8] = if self.task.writes() { b"PUT" } else { b"GET" };
        for part in [method, b" /v0/entity?id=", key, self.tail.as_bytes()] {
            out.extend_from_slice(part);
        }
        if self.task.writes() {
            write!(out, "Content-Length: {}\r\n\r\n", value.len()).expect("a vector takes everything");
            out.extend_from_slice(value);
        } else {
            out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], _out: &mut Vec<u8>) -> Result<(usize, Option<Ending>), DriveError> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head.parse(bytes).map_err(|_| DriveError::Malformed("the head is not HTTP/1.1"))?;
        let httparse::Status::Complete(head_bytes) = parsed else { return Ok((0, None)) };
        let length = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
        let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.trim().parse::<usize>().ok());
        let body_bytes = match (head.code, length) {
            (Some(204), _) => 0,
            (_, Some(length)) => length,
            (_, None) => return Err(DriveError::Malformed("no length of the body")),
        };
        if bytes.len() - head_bytes < body_bytes {
            return Ok((0, None));
        }
        let ending = self.ending(head.code.unwrap_or(0), body_bytes);
        Ok((head_bytes + body_bytes, Some(ending)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::endings;
    use super::*;

    #[test]
    fn a_request_names_its_quorum() {
        let mut out = Vec::new();
        Http::new("h:1", Task::Put).request(&mut out, b"k", b"vv").unwrap();
        let text = "PUT /v0/entity?id=k&ack=2&from=3 HTTP/1.1\r\nHost: h:1\r\nContent-Length: 2\r\n\r\nvv";
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn an_answer_counts_by_status_and_by_length() {
        let stream = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nvalueHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nvalu";
        for piece in 1..stream.len() + 1 {
            let found = endings(&mut Http::new("h", Task::Get), stream, piece).unwrap().0;
            assert_eq!(found, [Ending::Done, Ending::Refused, Ending::Refused], "pieces of {piece}");
        }
        let stream =
            b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno";
        let found = endings(&mut Http::new("h", Task::Put), stream, usize::MAX).unwrap().0;
        assert_eq!(found, [Ending::Done, Ending::Refused]);
        assert!(endings(&mut Http::new("h", Task::Put), b"HTTP/1.1 200 OK\r\n\r\n", 9).is_err());
    }
}
