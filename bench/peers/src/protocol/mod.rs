//! What differs between the three systems: the bytes of a request, and what of the answer is a success.
//!
//! A protocol holds the state of one connection with at most one request under way. It does no I/O.

pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod resp;

use crate::error::DriveError;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Written as safely as asked for, or read with a value of the expected length.
    Done,
    /// Answered otherwise.
    Refused,
}

/// One connection's protocol, for the requests of one task.
pub(crate) trait Protocol {
    /// Appends what is sent before the first request.
    fn greet(&mut self, _out: &mut Vec<u8>) {}

    /// Appends a request. The value of a GET is not sent; its length is expected.
    ///
    /// # Errors
    /// [`DriveError::Malformed`] if the server has not made room for another one.
    fn request(&mut self, out: &mut Vec<u8>, key: &[u8], value: &[u8]) -> Result<(), DriveError>;

    /// Takes bytes of the stream up to the end of an answer. Returns how many it took, and the ending if an answer is
    /// whole. Without one, the rest is given again together with what comes next. Appends what the protocol itself must
    /// send.
    ///
    /// # Errors
    /// [`DriveError::Malformed`]: the connection is of no use any more.
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, Option<Ending>), DriveError>;
}

/// For tests: the endings of a stream that comes in pieces of this length, and what was sent meanwhile. Before each
/// answer a request is made.
#[cfg(test)]
fn endings(protocol: &mut dyn Protocol, stream: &[u8], piece: usize) -> Result<(Vec<Ending>, Vec<u8>), DriveError> {
    let (mut found, mut input, mut requests, mut out) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    protocol.request(&mut requests, b"key", b"value")?;
    for piece in stream.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            let (taken, ending) = protocol.take(&input, &mut out)?;
            input.drain(..taken);
            let Some(ending) = ending else { break };
            found.push(ending);
            protocol.request(&mut requests, b"key", b"value")?;
        }
    }
    Ok((found, out))
}
