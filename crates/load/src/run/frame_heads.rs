//! The heads of a body's frames, found in its pieces, and nothing else of them. Bounded: nothing but one head is kept.

/// Walks over frames of which the first `N` bytes are of interest.
#[derive(Debug)]
pub(super) struct FrameHeads<const N: usize> {
    head: [u8; N],
    head_length: usize,
    /// Bytes of a frame that are still to come.
    skipped: usize,
}

impl<const N: usize> Default for FrameHeads<N> {
    fn default() -> Self {
        Self { head: [0; N], head_length: 0, skipped: 0 }
    }
}

impl<const N: usize> FrameHeads<N> {
    /// Takes bytes off the front until a head is whole; all of them, if none is.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<[u8; N]> {
        while !bytes.is_empty() {
            let length = if self.skipped > 0 { self.skipped } else { N - self.head_length };
            let (piece, rest) = bytes.split_at(length.min(bytes.len()));
            *bytes = rest;
            if self.skipped > 0 {
                self.skipped -= piece.len();
                continue;
            }
            let room = self.head.iter_mut().skip(self.head_length);
            room.zip(piece).for_each(|(into, byte)| *into = *byte);
            self.head_length += piece.len();
            if self.head_length == N {
                self.head_length = 0;
                return Some(self.head);
            }
        }
        None
    }

    /// So many bytes follow until the next head.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.skipped = bytes;
    }

    /// Whether what came until now ends with a frame.
    pub(super) fn is_at_end(&self) -> bool {
        self.head_length == 0 && self.skipped == 0
    }
}
