//! Every hint is taken once or counted as dropped, in the order of its shard; the bound holds; the hint store wakes.

use std::sync::Arc;
use std::time::Duration;

use kvorum_base::interleavings::check;
use kvorum_core::hints::BacklogBounds;
use kvorum_core::node::NodeId;
use kvorum_core::{Hlc, Incarnation, Key, Record, Version};
use shuttle::future::block_on;
use shuttle::thread;

use crate::hints::{Dropped, HintQueue, HintSettings};

const SHARDS: usize = 2;
const EACH: usize = 3;

fn offer(queue: &HintQueue, shard: usize, number: usize) {
    let key = Key::new(vec![shard as u8, number as u8].into()).unwrap();
    let record = Record::value(&key, Version { hlc: Hlc::from_raw(1), incarnation: Incarnation(1) }, 1, None, b"v");
    queue.offer(&key, &record, vec![NodeId(1)]);
}

#[test]
fn every_hint_is_taken_once_and_in_order_or_counted_and_the_hint_store_wakes() {
    check(1, || {
        let bounds = BacklogBounds { bytes_max: 1 << 20, age_max: Duration::from_secs(60) };
        let settings = HintSettings { bounds, rate: 1, queue_bytes_max: 600 };
        let queue = Arc::new(HintQueue::new(settings));
        for shard in 0..SHARDS {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                for number in 0..EACH {
                    offer(&queue, shard, number);
                    assert!(queue.waiting_bytes() <= settings.queue_bytes_max);
                }
            });
        }
        let mut seen = [None; SHARDS];
        let mut taken = 0;
        // As the hint store does, but that it would look again after a while: here a missed wake-up is the end.
        while taken + queue.dropped(Dropped::QueueFull) < (SHARDS * EACH) as u64 {
            block_on(queue.filled());
            loop {
                let hints = queue.take(1);
                if hints.is_empty() {
                    break;
                }
                for hint in hints {
                    let [shard, number] = *hint.key().as_bytes() else { panic!("two bytes") };
                    let last = seen[usize::from(shard)].replace(number);
                    assert!(last < Some(number), "out of order or twice");
                    taken += 1;
                }
            }
        }
        assert_eq!(queue.waiting_bytes(), 0);
    });
}
