//! Answers, taken from a stream of bytes: statuses and ends. Bodies are skipped, kept for callers that need them, or
//! searched for the outcomes of a batch or a scan's trailer.
//!
//! Bounded: a head has at most 16 KiB and 64 headers. Bodies that are kept are bounded by the caller.

use super::outcomes::OutcomeParser;
use super::scan_end::ScanEndParser;
use crate::numbers::{count, index};

const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// Longest line of a chunk's size, its extensions included, or of a trailer.
const LINE_BYTES_MAX: usize = 1 << 10;
/// Behind the bytes of a chunk.
const LINE_END_BYTES: u64 = 2;

/// A whole answer was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedResponse {
    pub(crate) status: u16,
    /// The server closes the connection behind it.
    pub(crate) closes: bool,
}

/// What came is not HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedResponse;

/// Where in an answer the stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParseState {
    Head,
    /// This many bytes of a body of known length are missing.
    Body(u64),
    ChunkSize,
    /// This many bytes of a chunk and its line end are missing.
    Chunk(u64),
    Trailer,
    /// The body ends with the connection.
    Rest,
}

/// What becomes of bodies.
#[derive(Debug)]
enum BodyUse {
    Skipped,
    /// What has come so far.
    Kept(Vec<u8>),
    Outcomes(OutcomeParser),
    ScanEnd(ScanEndParser),
}

/// Finds the answers in a connection's bytes.
#[derive(Debug)]
pub(crate) struct ResponseParser {
    place: ParseState,
    /// The beginning of a head or line whose end has not come.
    partial: Vec<u8>,
    answer: ReceivedResponse,
    body: BodyUse,
}

impl ResponseParser {
    pub(crate) fn new() -> Self {
        Self {
            place: ParseState::Head,
            partial: Vec::new(),
            answer: ReceivedResponse { status: 0, closes: false },
            body: BodyUse::Skipped,
        }
    }

    /// That keep bodies.
    pub(crate) fn with_bodies() -> Self {
        Self { body: BodyUse::Kept(Vec::new()), ..Self::new() }
    }

    /// That are searched for outcomes.
    pub(crate) fn with_outcomes() -> Self {
        Self { body: BodyUse::Outcomes(OutcomeParser::default()), ..Self::new() }
    }

    /// That are searched for a scan's trailer.
    pub(crate) fn with_scan_ends() -> Self {
        Self { body: BodyUse::ScanEnd(ScanEndParser::default()), ..Self::new() }
    }

    /// Another stream begins.
    pub(crate) fn restart(&mut self) {
        self.place = ParseState::Head;
        self.partial.clear();
    }

    /// The statuses of the outcomes in the answer that has ended; none where its body is something else.
    pub(crate) fn outcomes(&self) -> Option<&[u16]> {
        match &self.body {
            BodyUse::Outcomes(outcomes) => outcomes.statuses(),
            BodyUse::Skipped | BodyUse::Kept(_) | BodyUse::ScanEnd(_) => None,
        }
    }

    /// Whether the answer that has ended is a whole scan.
    pub(crate) fn is_whole_scan(&self) -> bool {
        matches!(&self.body, BodyUse::ScanEnd(scan) if scan.is_whole())
    }

    /// The body of the answer that has ended, or what there is of one that has not; empty if bodies are not kept.
    pub(crate) fn take_body(&mut self) -> Vec<u8> {
        match &mut self.body {
            BodyUse::Kept(body) => std::mem::take(body),
            BodyUse::Skipped | BodyUse::Outcomes(_) | BodyUse::ScanEnd(_) => Vec::new(),
        }
    }

    fn take_body_piece(&mut self, bytes: &[u8], length: u64) {
        let piece = || bytes.get(..index(length)).unwrap_or(bytes);
        match &mut self.body {
            BodyUse::Skipped => {}
            BodyUse::Kept(body) => body.extend_from_slice(piece()),
            BodyUse::Outcomes(outcomes) => outcomes.take(piece()),
            BodyUse::ScanEnd(scan) => scan.take(piece()),
        }
    }

    /// Takes bytes until an answer is whole: how many, and the answer. Without one, all were taken.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<ReceivedResponse>), MalformedResponse> {
        let mut taken = 0;
        loop {
            let rest = bytes.get(taken..).unwrap_or_default();
            if rest.is_empty() && !matches!(self.place, ParseState::Body(0)) {
                return Ok((taken, None));
            }
            match self.place {
                ParseState::Head => taken += self.take_head(rest)?,
                ParseState::Body(missing) => {
                    let here = count(rest.len()).min(missing);
                    self.take_body_piece(rest, here);
                    taken += index(here);
                    self.place = ParseState::Body(missing - here);
                    if missing == here {
                        return Ok((taken, Some(self.end())));
                    }
                }
                ParseState::Chunk(missing) => {
                    let here = count(rest.len()).min(missing);
                    self.take_body_piece(rest, here.min(missing.saturating_sub(LINE_END_BYTES)));
                    taken += index(here);
                    self.place =
                        if missing == here { ParseState::ChunkSize } else { ParseState::Chunk(missing - here) };
                }
                ParseState::ChunkSize | ParseState::Trailer => {
                    let (length, ended) = self.take_line(rest)?;
                    taken += length;
                    if ended {
                        return Ok((taken, Some(self.end())));
                    }
                }
                ParseState::Rest => {
                    self.take_body_piece(rest, u64::MAX);
                    return Ok((bytes.len(), None));
                }
            }
        }
    }

    /// The connection was closed: the answer that ends with it, if there is one.
    pub(crate) fn close(&mut self) -> Option<ReceivedResponse> {
        (self.place == ParseState::Rest).then(|| self.end())
    }

    fn end(&mut self) -> ReceivedResponse {
        self.place = ParseState::Head;
        self.answer
    }

    /// Reads a head if all of it is here, else keeps what is: how many bytes were used.
    fn take_head(&mut self, bytes: &[u8]) -> Result<usize, MalformedResponse> {
        if self.partial.is_empty() {
            return match self.read_head(bytes)? {
                Some(length) => Ok(length),
                None => self.keep(bytes),
            };
        }
        let before = self.partial.len();
        let room = bytes.len().min(HEAD_BYTES_MAX.saturating_sub(before));
        let mut partial = std::mem::take(&mut self.partial);
        partial.extend_from_slice(bytes.get(..room).unwrap_or_default());
        match self.read_head(&partial)? {
            Some(length) => Ok(length - before),
            None if partial.len() >= HEAD_BYTES_MAX => Err(MalformedResponse),
            None => {
                self.partial = partial;
                Ok(room)
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<usize, MalformedResponse> {
        if bytes.len() >= HEAD_BYTES_MAX {
            return Err(MalformedResponse);
        }
        self.partial.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// The length of a whole head.
    fn read_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, MalformedResponse> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = head.parse(bytes).map_err(|_| MalformedResponse)? else {
            return Ok(None);
        };
        if length > HEAD_BYTES_MAX {
            return Err(MalformedResponse);
        }
        let status = head.code.filter(|status| *status >= 100).ok_or(MalformedResponse)?;
        let old = head.version == Some(0);
        let (mut closes, mut body, mut chunked) = (old, None, false);
        for header in head.headers.iter() {
            if header.name.eq_ignore_ascii_case("content-length") {
                let text = std::str::from_utf8(header.value).map_err(|_| MalformedResponse)?;
                body = Some(text.trim().parse::<u64>().map_err(|_| MalformedResponse)?);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = header.value.eq_ignore_ascii_case(b"chunked");
            } else if header.name.eq_ignore_ascii_case("connection") {
                closes = header.value.eq_ignore_ascii_case(b"close")
                    || closes && !header.value.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        self.place = match (status, body) {
            // Not the answer yet: another head follows.
            (100..200, _) => ParseState::Head,
            (204 | 304, _) => ParseState::Body(0),
            _ if chunked => ParseState::ChunkSize,
            (_, Some(length)) => ParseState::Body(length),
            (_, None) => ParseState::Rest,
        };
        match &mut self.body {
            BodyUse::Outcomes(outcomes) => outcomes.clear(),
            BodyUse::ScanEnd(scan) => scan.clear(),
            BodyUse::Skipped | BodyUse::Kept(_) => {}
        }
        self.answer = ReceivedResponse { status, closes: closes || self.place == ParseState::Rest };
        Ok(Some(length))
    }

    /// Reads a line of the framing of chunks: how many bytes were used, and whether the answer ends here.
    fn take_line(&mut self, bytes: &[u8]) -> Result<(usize, bool), MalformedResponse> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            if self.partial.len() + bytes.len() > LINE_BYTES_MAX {
                return Err(MalformedResponse);
            }
            self.partial.extend_from_slice(bytes);
            return Ok((bytes.len(), false));
        };
        let mut line = std::mem::take(&mut self.partial);
        line.extend_from_slice(bytes.get(..end).unwrap_or_default());
        let line = line.trim_ascii_end();
        if self.place == ParseState::Trailer {
            return Ok((end + 1, line.is_empty()));
        }
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let digits = std::str::from_utf8(digits).map_err(|_| MalformedResponse)?;
        let size = u64::from_str_radix(digits, 16).map_err(|_| MalformedResponse)?;
        let with_line_end = size.checked_add(LINE_END_BYTES).ok_or(MalformedResponse)?;
        self.place = if size == 0 { ParseState::Trailer } else { ParseState::Chunk(with_line_end) };
        Ok((end + 1, false))
    }
}

#[cfg(test)]
mod tests {
    use super::{MalformedResponse, ResponseParser};

    const MANY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: now\r\n\r\nhello\
        HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n\
        HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n\
        HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno";

    /// Statuses, a closing one negative, of a stream that comes in pieces of this length.
    fn statuses(stream: &[u8], piece: usize) -> Result<Vec<i32>, MalformedResponse> {
        let mut answers = ResponseParser::new();
        let mut found = Vec::new();
        for mut piece in stream.chunks(piece) {
            while !piece.is_empty() {
                let (taken, answer) = answers.take(piece)?;
                piece = &piece[taken..];
                found.extend(answer.map(|answer| i32::from(answer.status) * if answer.closes { -1 } else { 1 }));
            }
        }
        found.extend(answers.close().map(|answer| -i32::from(answer.status)));
        Ok(found)
    }

    #[test]
    fn answers_are_found_however_the_stream_is_cut() {
        for piece in 1..MANY.len() + 1 {
            assert_eq!(statuses(MANY.as_bytes(), piece), Ok(vec![200, 204, 201, 200, -503]), "pieces of {piece}");
        }
    }

    #[test]
    fn bodies_are_kept_where_they_are_asked_for_without_their_framing() {
        for length in 1..MANY.len() + 1 {
            let (mut answers, mut bodies) = (ResponseParser::with_bodies(), Vec::new());
            for mut piece in MANY.as_bytes().chunks(length) {
                while !piece.is_empty() {
                    let (taken, answer) = answers.take(piece).unwrap();
                    piece = &piece[taken..];
                    bodies.extend(answer.map(|_| String::from_utf8(answers.take_body()).unwrap()));
                }
            }
            assert_eq!(bodies, ["hello", "", "", "abc0123456789", "no"], "pieces of {length}");
        }
    }

    #[test]
    fn outcomes_are_of_the_answer_that_has_ended_without_its_framing() {
        // A frame of 24 bytes behind its length, with these two of its status.
        let frame = |status: &str| format!("\0\0\0\x18\x11{status}{}", "\0".repeat(21));
        let (ok, gone) = (frame("\0\x64"), frame("\x01\x01"));
        let chunked = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{ok}\r\n", ok.len());
        let chunked = format!("{chunked}{:x}\r\n{gone}\r\n0\r\n\r\n", gone.len());
        let plain = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{gone}", gone.len());
        let stream = format!("{chunked}HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno{plain}");
        for length in 1..stream.len() + 1 {
            let (mut answers, mut found) = (ResponseParser::with_outcomes(), Vec::new());
            for mut piece in stream.as_bytes().chunks(length) {
                while !piece.is_empty() {
                    let (taken, answer) = answers.take(piece).unwrap();
                    piece = &piece[taken..];
                    found.extend(answer.map(|_| answers.outcomes().map(<[u16]>::to_vec)));
                }
            }
            assert_eq!(found, [Some(vec![100, 257]), None, Some(vec![257])], "pieces of {length}");
        }
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection() {
        assert_eq!(statuses(b"HTTP/1.0 200 OK\r\n\r\nall of it", 4), Ok(vec![-200]));
    }

    #[test]
    fn garbage_is_refused() {
        let long = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "a".repeat(20_000));
        let chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let endless = format!("{chunk}{}", "0".repeat(3000));
        let (not_hex, too_large) = (format!("{chunk}xyz\r\n"), format!("{chunk}ffffffffffffffff\r\n"));
        for garbage in [
            "SSH-2.0-OpenSSH\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            &long,
            &not_hex,
            &too_large,
            &endless,
        ] {
            for piece in [1, 100, usize::MAX] {
                assert_eq!(statuses(garbage.as_bytes(), piece), Err(MalformedResponse), "{garbage:.60}");
            }
        }
    }
}
