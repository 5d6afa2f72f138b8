//! Batches of kvorum's: many operations in one request, as frames.
//!
//! An operation is `u32 length | u8 type 16 | u8 op (1 put, 2 get, 3 delete) | u16 key length | key | u8 ack | u8 from |
//! u32 ttl | u8 content-type length | value`, big-endian, where `length` counts what is behind it. Zeros are what the
//! request says as a whole, or the server by default.

use super::distinct::KeySet;
use super::keys::KeySource;
use super::mix::{ClientOperation, Workload};
use super::requests::push_key;
use super::values::Values;

/// Most operations of one batch.
pub const BATCH_MAX: usize = 1_000;
/// Most bytes of values in one: a server takes, and answers, 8 MiB with all that is around them.
pub const BATCH_VALUE_BYTES_MAX: u64 = 4 << 20;

const OPERATION: u8 = 16;
/// `ack`, `from`, `ttl` and the length of the content type.
const DEFAULTS: [u8; 7] = [0; 7];

/// What is done to which key.
pub(crate) type BatchedOperation = (ClientOperation, u64);

/// Makes one batch after the other, in the same memory.
#[derive(Debug)]
pub(crate) struct OperationBatch {
    /// The body of the request.
    frames: Vec<u8>,
    keys: KeySet,
}

impl OperationBatch {
    /// Of so many operations at most.
    pub(crate) fn new(operations: usize) -> Self {
        Self { frames: Vec::new(), keys: KeySet::new(operations) }
    }

    /// Begins another one.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.keys.clear();
    }

    /// Adds an operation of the workload, on a key that the batch does not have yet.
    pub(crate) fn draw(&mut self, workload: &Workload, keys: &mut KeySource, values: &Values) -> BatchedOperation {
        let operation = workload.draw(&mut keys.random);
        let key = match operation {
            ClientOperation::Insert => keys.fresh_beside(&mut self.keys),
            _ => keys.existing_beside(&mut self.keys),
        };
        self.push(operation, key, values);
        (operation, key)
    }

    /// Adds an operation on a key that the batch does not have.
    pub(crate) fn push(&mut self, operation: ClientOperation, key: u64, values: &Values) {
        let (op, value): (u8, &[u8]) = match operation {
            ClientOperation::Put | ClientOperation::Insert => (1, values.of(key)),
            ClientOperation::Get => (2, b""),
            ClientOperation::Delete => (3, b""),
            ClientOperation::Range | ClientOperation::Scan | ClientOperation::Modify => {
                unreachable!("refused by `RunPlan::check`")
            }
        };
        let start = self.frames.len();
        self.frames.extend_from_slice(&[0, 0, 0, 0, OPERATION, op, 0, 0]);
        push_key(&mut self.frames, key);
        let key_length = self.frames.len() - start - 8;
        self.frames.extend_from_slice(&DEFAULTS);
        self.frames.extend_from_slice(value);
        let length = u32::try_from(self.frames.len() - start - 4).expect("a value has at most 64 MiB");
        self.fill_in(start, &length.to_be_bytes());
        self.fill_in(start + 6, &u16::try_from(key_length).expect("a key has a few digits").to_be_bytes());
    }

    fn fill_in(&mut self, place: usize, bytes: &[u8]) {
        let into = self.frames.get_mut(place..place + bytes.len());
        into.expect("room was left for it").copy_from_slice(bytes);
    }

    /// The body of the request that carries it.
    pub(crate) fn body(&self) -> &[u8] {
        &self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::OperationBatch;
    use crate::workload::{ClientOperation, KeyOrder, Keys, ValueSize, Values, Writer};

    #[test]
    fn operations_are_the_frames_that_a_server_expects() {
        let values = Values::new(ValueSize::Fixed(3), false, Writer::Run);
        let mut batch = OperationBatch::new(3);
        batch.push(ClientOperation::Get, 9, &values);
        batch.clear();
        batch.push(ClientOperation::Put, 42, &values);
        batch.push(ClientOperation::Delete, 7, &values);
        let put = [b"\0\0\0\x19\x10\x01\0\x0bkey00000042\0\0\0\0\0\0\0", values.of(42)].concat();
        let delete = b"\0\0\0\x16\x10\x03\0\x0bkey00000007\0\0\0\0\0\0\0";
        assert_eq!(batch.body(), [&put[..], delete].concat());
    }

    #[test]
    fn operations_are_drawn_by_the_workloads_shares_and_no_key_twice() {
        let values = Values::new(ValueSize::Fixed(3), false, Writer::Run);
        let mut keys = Keys::new(KeyOrder::Zipfian, 0, 2000).source(0, 1, 7);
        let workload = "mixed:get=2,put=1,insert=1".parse().unwrap();
        let mut batch = OperationBatch::new(1000);
        let mut drawn: Vec<_> = (0..1000).map(|_| batch.draw(&workload, &mut keys, &values)).collect();
        let gets = drawn.iter().filter(|(operation, _)| *operation == ClientOperation::Get).count();
        assert!(gets.abs_diff(500) < 100, "{gets}");
        assert!(drawn.iter().all(|(operation, key)| (*operation == ClientOperation::Insert) == (*key >= 2000)));
        drawn.sort_unstable_by_key(|(_, key)| *key);
        drawn.dedup_by_key(|(_, key)| *key);
        assert_eq!(drawn.len(), 1000);
    }
}
