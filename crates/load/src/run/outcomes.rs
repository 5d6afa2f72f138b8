//! Outcomes of a batch, taken from the pieces of its answer's body: their statuses, and nothing else of them.
//!
//! A frame is `u32 length | u8 type 17 | u16 status | …`, big-endian, where `length` counts what is behind it. Bounded:
//! as many statuses are kept as a batch has operations at most.

use super::frame_heads::FrameHeads;
use crate::workload::BATCH_MAX;

const OUTCOME: u8 = 17;
/// The length, the type and the status.
const HEAD_BYTES: usize = 7;
/// What the length counts of these.
const HEAD_COUNTED: usize = 3;
/// The version, the moment of expiry, and the content type's length.
const FIXED_BYTES: usize = 12 + 8 + 1;

/// Finds the statuses in a body.
#[derive(Debug, Default)]
pub(crate) struct OutcomeParser {
    statuses: Vec<u16>,
    frames: FrameHeads<HEAD_BYTES>,
    is_malformed: bool,
}

impl OutcomeParser {
    /// Begins another body.
    pub(super) fn clear(&mut self) {
        self.statuses.clear();
        (self.frames, self.is_malformed) = (FrameHeads::default(), false);
    }

    /// Takes a piece of the body. What is malformed stays so.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) {
        while !self.is_malformed
            && let Some(head) = self.frames.next(&mut bytes)
        {
            self.take_head(head);
        }
    }

    fn take_head(&mut self, [a, b, c, d, kind, high, low]: [u8; HEAD_BYTES]) {
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let status = u16::from_be_bytes([high, low]);
        let is_whole = length >= HEAD_COUNTED + FIXED_BYTES;
        if kind != OUTCOME || !is_whole || !(100..600).contains(&status) || self.statuses.len() == BATCH_MAX {
            self.is_malformed = true;
            return;
        }
        self.frames.skip(length - HEAD_COUNTED);
        self.statuses.push(status);
    }

    /// The statuses in the order of the operations, of a body that has ended; none if it is no sequence of outcomes.
    pub(crate) fn statuses(&self) -> Option<&[u16]> {
        let is_whole = !self.is_malformed && self.frames.is_at_end();
        is_whole.then_some(self.statuses.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::OutcomeParser;
    use crate::workload::BATCH_MAX;

    fn frame(kind: u8, status: u16, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(1 + 2 + 12 + 8 + 1 + payload.len()).unwrap();
        let mut frame = length.to_be_bytes().to_vec();
        frame.push(kind);
        frame.extend(status.to_be_bytes());
        frame.extend([7; 12 + 8]);
        frame.push(0);
        frame.extend(payload);
        frame
    }

    /// Of a body that comes in pieces of this length.
    fn statuses(body: &[u8], piece: usize) -> Option<Vec<u16>> {
        let mut parser = OutcomeParser::default();
        // What was in the body before is of no matter.
        parser.take(b"no frame of any kind");
        parser.clear();
        body.chunks(piece).for_each(|piece| parser.take(piece));
        parser.statuses().map(<[u16]>::to_vec)
    }

    #[test]
    fn statuses_are_found_however_the_body_is_cut() {
        let body = [frame(17, 200, &[17; 300]), frame(17, 201, b""), frame(17, 504, b"{}")].concat();
        for piece in 1..=body.len() {
            assert_eq!(statuses(&body, piece), Some(vec![200, 201, 504]), "pieces of {piece}");
        }
        assert_eq!(statuses(b"", 1), Some(Vec::new()));
    }

    #[test]
    fn what_is_no_sequence_of_whole_outcomes_has_no_statuses() {
        let whole = frame(17, 200, b"value");
        let mut short = whole.clone();
        short[..4].copy_from_slice(&23_u32.to_be_bytes());
        let many = frame(17, 200, b"").repeat(BATCH_MAX + 1);
        for bad in [
            &whole[..whole.len() - 1],
            &[&whole[..], &whole[..3]].concat(),
            &frame(16, 200, b""),
            &frame(17, 0, b""),
            &short,
            &many,
            b"{\"status\":200}\n",
        ] {
            for piece in [1, 10, usize::MAX] {
                assert_eq!(statuses(bad, piece), None, "{:?}", &bad[..bad.len().min(20)]);
            }
        }
    }
}
