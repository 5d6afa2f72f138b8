//! Whether a scan's answer ends with its trailer, found in the pieces of its body. Without one the answer is broken.
//!
//! A frame is `u32 length | u8 type | …`, big-endian, where `length` counts what is behind it. Of a frame only these
//! are looked at. Bounded: nothing of a body is kept.

use super::frame_heads::FrameHeads;

const TRAILER: u8 = 3;
const HEAD_BYTES: usize = 5;
/// What the length counts of these.
const HEAD_COUNTED: usize = 1;

/// Walks over the frames of a body.
#[derive(Debug, Default)]
pub(crate) struct ScanEndParser {
    frames: FrameHeads<HEAD_BYTES>,
    has_trailer: bool,
    is_malformed: bool,
}

impl ScanEndParser {
    /// Begins another body.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes a piece of the body. What is malformed stays so.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) {
        while !self.is_malformed
            && let Some([a, b, c, d, kind]) = self.frames.next(&mut bytes)
        {
            let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
            // Nothing follows a trailer.
            self.is_malformed = self.has_trailer || length < HEAD_COUNTED;
            self.has_trailer |= kind == TRAILER;
            self.frames.skip(length.saturating_sub(HEAD_COUNTED));
        }
    }

    /// Whether the body, which has ended, is whole frames of which the last is a trailer.
    pub(crate) fn is_whole(&self) -> bool {
        self.has_trailer && !self.is_malformed && self.frames.is_at_end()
    }
}

#[cfg(test)]
mod tests {
    use super::ScanEndParser;

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        [&u32::try_from(1 + body.len()).unwrap().to_be_bytes()[..], &[kind], body].concat()
    }

    fn is_whole(body: &[u8], piece: usize) -> bool {
        let mut parser = ScanEndParser::default();
        // What was in the body before is of no matter.
        parser.take(b"no frame of any kind");
        parser.clear();
        body.chunks(piece).for_each(|piece| parser.take(piece));
        parser.is_whole()
    }

    #[test]
    fn a_body_is_whole_with_its_trailer_and_not_before_however_it_is_cut() {
        let records = [frame(1, &[3; 300]), frame(2, b"token"), frame(1, b"")].concat();
        let body = [&records[..], &frame(3, b"\x01 and the rest")].concat();
        for piece in 1..=body.len() {
            assert!(is_whole(&body, piece), "pieces of {piece}");
        }
        for length in 0..body.len() {
            assert!(!is_whole(&body[..length], 7), "{length} bytes");
        }
    }

    #[test]
    fn nothing_follows_a_trailer_and_no_frame_is_empty() {
        let end = frame(3, b"x");
        for bad in [[&end[..], &frame(1, b"x")].concat(), [&end[..], &end].concat(), [&[0; 4][..], &end].concat()] {
            for piece in [1, 10, usize::MAX] {
                assert!(!is_whole(&bad, piece), "{bad:?}");
            }
        }
    }
}
