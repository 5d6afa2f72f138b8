//! Redis: RESP2. A PUT is `SET` and `WAIT 1` in one write, so that it takes one round trip, as in the other systems.
//!
//! `WAIT` counts replicas that have applied the write. With `appendfsync always` a replica answers only after the
//! `fsync` of its log, because Redis writes answers behind that in its event loop.
//! Source: the Redis documentation of `WAIT` and of the protocol; `beforeSleep` in `server.c` of Redis 7.0.

use std::io::Write;

use super::{Ending, Protocol};
use crate::error::DriveError;
use crate::plan::Task;

/// How long a `WAIT` may take; a `WAIT` that ends by it counts as refused unless a replica confirmed.
const WAIT: &[u8] = b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n5000\r\n";
/// The longest line of an answer.
const LINE_BYTES_MAX: usize = 4096;

/// One reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RespReply {
    Status,
    Error,
    Number(i64),
    /// Of this length; negative where there is no value.
    Bulk(i64),
}

pub(crate) struct Resp {
    task: Task,
    value_bytes: usize,
    /// What `SET` was answered, while the answer of `WAIT` is awaited.
    set: Option<RespReply>,
}

impl Resp {
    pub(crate) fn new(task: Task) -> Self {
        Self { task, value_bytes: 0, set: None }
    }

    /// The ending on a request, once its last reply is here.
    fn reply(&mut self, reply: RespReply) -> Option<Ending> {
        if !self.task.writes() {
            let found = matches!(reply, RespReply::Bulk(length) if usize::try_from(length) == Ok(self.value_bytes));
            return Some(if found { Ending::Done } else { Ending::Refused });
        }
        let Some(set) = self.set.take() else {
            self.set = Some(reply);
            return None;
        };
        let done = set == RespReply::Status && matches!(reply, RespReply::Number(replicas) if replicas >= 1);
        Some(if done { Ending::Done } else { Ending::Refused })
    }
}

/// The first reply and how many bytes it has, if it is whole.
fn first(bytes: &[u8]) -> Result<Option<(usize, RespReply)>, DriveError> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
        if bytes.len() > LINE_BYTES_MAX {
            return Err(DriveError::Malformed("a line without an end"));
        }
        return Ok(None);
    };
    let line = bytes.get(..end).unwrap_or_default();
    let number = || {
        let text = std::str::from_utf8(line.get(1..).unwrap_or_default()).ok();
        text.and_then(|text| text.parse::<i64>().ok()).ok_or(DriveError::Malformed("not a number"))
    };
    let reply = match line.first() {
        Some(b'+') => RespReply::Status,
        Some(b'-') => RespReply::Error,
        Some(b':') => RespReply::Number(number()?),
        Some(b'$') => RespReply::Bulk(number()?),
        _ => return Err(DriveError::Malformed("not RESP2")),
    };
    let body = match reply {
        RespReply::Bulk(length) => usize::try_from(length).map_or(0, |length| length + 2),
        _ => 0,
    };
    let whole = end + 2 + body;
    Ok((bytes.len() >= whole).then_some((whole, reply)))
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    write!(out, "${}\r\n", bytes.len()).expect("a vector takes everything");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

impl Protocol for Resp {
    fn request(&mut self, out: &mut Vec<u8>, key: &[u8], value: &[u8]) -> Result<(), DriveError> {
        self.value_bytes = value.len();
        if self.task.writes() {
            out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
            bulk(out, key);
            bulk(out, value);
            out.extend_from_slice(WAIT);
        } else {
            out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
            bulk(out, key);
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], _out: &mut Vec<u8>) -> Result<(usize, Option<Ending>), DriveError> {
        let mut taken = 0;
        while let Some((length, reply)) = first(bytes.get(taken..).unwrap_or_default())? {
            taken += length;
            if let Some(ending) = self.reply(reply) {
                return Ok((taken, Some(ending)));
            }
        }
        Ok((taken, None))
    }
}

#[cfg(test)]
mod tests {
    use super::super::endings;
    use super::*;

    #[test]
    fn a_put_is_done_when_it_is_set_and_a_replica_has_it() {
        let stream = b"+OK\r\n:1\r\n+OK\r\n:2\r\n+OK\r\n:0\r\n-ERR full\r\n:2\r\n+OK\r\n-ERR no\r\n";
        for piece in 1..stream.len() + 1 {
            let found = endings(&mut Resp::new(Task::Put), stream, piece).unwrap().0;
            let refused = Ending::Refused;
            assert_eq!(found, [Ending::Done, Ending::Done, refused, refused, refused], "pieces of {piece}");
        }
    }

    #[test]
    fn a_get_is_done_when_the_value_has_its_length() {
        let stream = b"$5\r\nva\r\nu\r\n$-1\r\n$4\r\nvalu\r\n-LOADING\r\n$5\r\nvalue\r\n";
        for piece in 1..stream.len() + 1 {
            let found = endings(&mut Resp::new(Task::Get), stream, piece).unwrap().0;
            let refused = Ending::Refused;
            assert_eq!(found, [Ending::Done, refused, refused, refused, Ending::Done], "pieces of {piece}");
        }
        assert!(endings(&mut Resp::new(Task::Get), b"HTTP/1.1\r\n", 3).is_err());
    }

    #[test]
    fn a_put_is_set_and_wait() {
        let mut out = Vec::new();
        Resp::new(Task::Put).request(&mut out, b"k", b"vv").unwrap();
        let text = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n5000\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }
}
