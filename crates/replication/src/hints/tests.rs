//! The queue and the names; what is kept and delivered is in `tests/process/hints.rs` of the binary.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use bytes::Bytes;
use kvorum_core::hints::BucketId;
use kvorum_core::{Hlc, Incarnation, Version};
use proptest::prelude::*;

use kvorum_core::layout::Layout;
use kvorum_storage::{HintChange, PageLimit, Store};

use super::names;
use super::names::{Name, TargetId};
use super::*;
use crate::coordinator::tests::rig::{Rig, Settings, run};

const VERSION: Version = Version { hlc: Hlc::from_millis(7), incarnation: Incarnation(7) };

fn queue(bytes_max: u64, queue_bytes_max: usize) -> HintQueue {
    let bounds = BacklogBounds { bytes_max, age_max: Duration::from_secs(60) };
    HintQueue::new(HintSettings { bounds, rate: 1, queue_bytes_max })
}

fn offer(queue: &HintQueue, value_bytes: usize) {
    let key = Key::new("k".into()).unwrap();
    let record = Record::value(&key, VERSION, 3, None, &vec![0; value_bytes]);
    queue.offer(&key, &record, vec![NodeId(0), NodeId(1)]);
}

#[test]
fn what_there_is_no_room_for_is_dropped_and_counted_for_each_target() {
    let queue = queue(1 << 20, 4000);
    (0..100).for_each(|_| offer(&queue, 1000));
    assert!(queue.waiting_bytes() <= 4000);
    let taken = queue.take(usize::MAX).len();
    assert!((2..=3).contains(&taken), "{taken}");
    assert_eq!(queue.dropped(Dropped::QueueFull), 2 * (100 - taken as u64));
    offer(&queue, 9000);
    assert_eq!(queue.take(1).len(), 1, "a large one alone finds room");
    assert_eq!(queue.waiting_bytes(), 0);
}

#[test]
fn hints_are_taken_in_their_order_and_about_as_many_bytes_as_asked() {
    let queue = queue(1 << 20, 1 << 20);
    (0..10).for_each(|_| offer(&queue, 1000));
    assert_eq!(queue.take(2500).len(), 3);
    assert_eq!(queue.take(usize::MAX).len(), 7);
}

#[test]
fn nothing_is_kept_where_hints_are_off_or_nobody_is_owed() {
    let off = queue(0, 1 << 20);
    offer(&off, 10);
    assert_eq!(off.take(1).len(), 0);
    let on = queue(1, 1 << 20);
    let key = Key::new("k".into()).unwrap();
    on.offer(&key, &Record::tombstone(&key, VERSION, 1), Vec::new());
    assert_eq!(on.take(1).len(), 0);
    on.offer(&key, &Record::tombstone(&key, VERSION, 1), vec![NodeId(1)]);
    assert_eq!(on.take(1).len(), 1);
}

#[test]
fn the_range_of_the_last_target_that_there_can_be_has_all_of_it() {
    let key = Key::new("k".into()).unwrap();
    // Of directories of an older format any may come.
    for target in [TargetId::of(NodeId(0)), TargetId::of(NodeId(u32::MAX)), TargetId::LAST] {
        assert!(target.range().contains(&names::hint(target, BucketId(u64::MAX), &key)));
    }
    let name = Bytes::from(vec![0xff; 16]);
    assert_eq!(names::parse(&name), None);
}

/// Keeps a hint for `node`, at the second of two peers, as a build before format 4 did: by the node's URL.
fn keep_by_url(rig: &Rig, node: NodeId, bucket: u64, name: &str) {
    let target = TargetId::of_url(&rig.shard.membership.peer(node).url);
    let (key, bucket) = (Key::new(name.to_owned().into()).unwrap(), BucketId(bucket));
    let record = Record::value(&key, VERSION, 3, None, b"value");
    let size = names::encode_size(Size { hints: 1, bytes: 10 });
    let changes = [
        HintChange::Keep(names::hint(target, bucket, &key), record.bytes().clone()),
        HintChange::Put(names::size(target, bucket), size),
    ];
    rig.store.change_hints(&changes).unwrap();
}

/// What lies in the store, by target.
fn held(rig: &Rig) -> Vec<(TargetId, Option<Key>)> {
    let limit = PageLimit { records: usize::MAX, bytes: usize::MAX };
    let page = rig.store.scan_hints(&[], &[0xff; 32], limit).unwrap();
    let held = page.records.iter().map(|(name, _)| match names::parse(name).unwrap() {
        Name::Size(target, _) => (target, None),
        Name::Hint(target, _, key) => (target, Some(key)),
    });
    held.collect()
}

#[test]
fn hints_that_were_kept_by_url_are_kept_for_the_node() {
    run(async {
        let rig = Rig::start(3, Settings::default()).await;
        let node = NodeId(2);
        for (bucket, name) in [(1, "a"), (1, "b"), (4, "c")] {
            keep_by_url(&rig, node, bucket, name);
        }
        let stranger = TargetId::of_url("http://gone:1");
        let name = names::hint(stranger, BucketId(1), &Key::new("d".into()).unwrap());
        rig.store.change_hints(&[HintChange::Put(name, Bytes::from_static(b"value"))]).unwrap();
        // Once more, as after a start that was interrupted.
        for _ in 0..2 {
            let hint_store = rig.shard.hint_store();
            hint_store.follow(&rig.shard.membership.layout());
            hint_store.load().await;
            let target = TargetId::of(node);
            let of_node: Vec<_> = held(&rig).into_iter().filter(|(of, _)| *of == target).collect();
            assert_eq!(of_node.iter().filter(|(_, key)| key.is_some()).count(), 3, "{of_node:?}");
            assert_eq!(held(&rig).iter().filter(|(of, _)| *of != target && *of != stranger).count(), 0);
            // Two buckets, whose sizes say one each.
            assert_eq!(rig.hints.target(node).pending.load(Ordering::Relaxed), 2);
        }
        assert_eq!(rig.hints.dropped(Dropped::NoReplica), 0, "its bucket has no size");
    });
}

#[test]
fn what_is_kept_for_a_node_that_has_left_is_dropped() {
    run(async {
        let rig = Rig::start(3, Settings::default()).await;
        let node = NodeId(2);
        keep_by_url(&rig, node, 1, "a");
        let hint_store = rig.shard.hint_store();
        assert_eq!(hint_store.follow(&rig.shard.membership.layout()).len(), 2);
        hint_store.load().await;
        let urls = [NodeId(0), NodeId(1)].map(|node| rig.shard.membership.peer(node).url.to_string());
        let fewer = Layout::fixed_at(urls).unwrap();
        assert!(hint_store.follow(&fewer).is_empty());
        assert_eq!(rig.hints.dropped(Dropped::NoReplica), 1);
        assert_eq!(rig.hints.target(node).pending.load(Ordering::Relaxed), 0);
        hint_store.write_all().await;
        assert!(held(&rig).is_empty());
        // It comes: what is kept from then on is new.
        assert_eq!(hint_store.follow(&rig.shard.membership.layout()).len(), 1);
        assert_eq!(rig.hints.target(node).pending.load(Ordering::Relaxed), 0);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn names_are_read_as_they_were_written(node: u32, bucket: u64, key in prop::collection::vec(any::<u8>(), 1..40)) {
        let (target, id) = (TargetId::of(NodeId(node)), BucketId(bucket));
        let key = Key::new(key.into()).unwrap();
        let hint = names::hint(target, id, &key);
        prop_assert!(names::hints(target, id).contains(&hint) && names::bucket(target, id).contains(&hint));
        prop_assert!(names::bucket(target, id).contains(&names::size(target, id)));
        prop_assert!(!names::hints(target, id).contains(&names::size(target, id)));
        prop_assert!(target.range().contains(&hint));
        prop_assert_eq!(names::parse(&hint), Some(Name::Hint(target, id, key)));
        prop_assert_eq!(names::parse(&names::size(target, id)), Some(Name::Size(target, id)));
    }

    #[test]
    fn buckets_lie_in_their_order(node: u32, one: u64, other: u64) {
        let target = TargetId::of(NodeId(node));
        let order = |bucket| names::size(target, BucketId(bucket));
        prop_assert_eq!(one.cmp(&other), order(one).cmp(&order(other)));
        prop_assert!(one == other || names::bucket(target, BucketId(one.min(other))).end <= order(one.max(other)));
    }

    #[test]
    fn sizes_are_read_as_they_were_written(hints: u64, bytes: u64) {
        let size = Size { hints, bytes };
        prop_assert_eq!(names::decode_size(&names::encode_size(size)), Some(size));
        prop_assert_eq!(names::decode_size(&names::encode_size(size)[1..]), None);
    }
}
