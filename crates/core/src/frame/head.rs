//! The header of a frame, and its checksum.

use bytes::BufMut;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::version::Hlc;

/// Longest payload of one frame; a longer one travels in several.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes before the payload.
pub const HEADER_BYTES: usize = UNSUMMED + 4;
/// Bytes before the checksum.
pub(super) const UNSUMMED: usize = 4 + 8 + 1 + 1 + 8 + 8;

/// Everything in the header but the length and the checksum: the same for all chunks of a message,
/// apart from [`MORE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) id: u64,
    pub(super) opcode: u8,
    pub(super) flags: u8,
    pub(super) epoch: u64,
    pub(super) hlc: Hlc,
}

impl Head {
    /// Writes the header over the first [`HEADER_BYTES`] of `frame`, the rest of which is its payload.
    pub(super) fn seal(self, frame: &mut [u8]) {
        let (header, payload) =
            frame.split_first_chunk_mut::<HEADER_BYTES>().expect("the header's place was left free");
        assert!(payload.len() <= CHUNK_BYTES, "no frame is longer than a chunk");
        let length = u32::try_from(payload.len()).expect("a chunk's length fits");
        let mut rest = header.as_mut_slice();
        rest.put_u32(length);
        rest.put_u64(self.id);
        rest.put_u8(self.opcode);
        rest.put_u8(self.flags);
        rest.put_u64(self.epoch);
        rest.put_u64(self.hlc.raw());
        let (unsummed, sum) = header.split_at_mut(UNSUMMED);
        sum.copy_from_slice(&checksum(unsummed, payload).to_be_bytes());
    }
}

/// Chained by the seed, as in [`crate::record`].
pub(super) fn checksum(unsummed: &[u8], payload: &[u8]) -> u32 {
    let hash = xxh3_64_with_seed(unsummed, xxh3_64(payload));
    u32::try_from(hash & u64::from(u32::MAX)).expect("the low half fits")
}
