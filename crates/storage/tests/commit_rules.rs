//! The committer against a naive reading of the replica's rules (docs/explanation/consistency.md): random stores,
//! batches, restarts, losses and faults; and the rules for damaged and cold records one by one.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvorum_core::key::Key;
use kvorum_core::partitions::PartitionSet;
use kvorum_core::quorum::{Current, Failure, Held, StoreAnswer};
use kvorum_core::record::Record;
use kvorum_core::version::{Hlc, Incarnation, Version};
use kvorum_storage::commit::{
    CommitConfig, Committer, Completion, CompletionToken, Prefetch, Promise, Submission, Work,
};
use kvorum_storage::memory::{Fault, MemoryStore};
use kvorum_storage::{Batch, Durability, Store, Tier, find};
use proptest::prelude::*;

const RETENTION: Duration = Duration::from_secs(10);
const SKEW_MS: u64 = 5_000;
const LEAD_MS: u64 = 1_000;
/// The wall clock when the boot clock is zero.
const EPOCH_MS: u64 = 1_000_000;

fn config() -> CommitConfig {
    CommitConfig {
        retention: RETENTION,
        recent_entries_max: 1000,
        skew_max: Duration::from_millis(SKEW_MS),
        bound_lead: Duration::from_millis(LEAD_MS),
        batch_bytes_max: 1 << 20,
        durability: Durability::Fsync,
    }
}

/// Two keys of one stripe, and one of another.
fn keys() -> [Key; 3] {
    let key = |number: u32| Key::new(number.to_string().into()).unwrap();
    let first = key(0);
    let same = (1..).map(key).find(|key| key.hash().stripe() == first.hash().stripe()).unwrap();
    [first, same, key(1)]
}

fn version(millis: u64, incarnation: u32) -> Version {
    Version { hlc: Hlc::from_millis(millis), incarnation: Incarnation(incarnation) }
}

fn submission(key: &Key, version: Version, repair: bool, id: u64) -> Submission {
    let record = Record::value(key, version, 3, None, b"value").bytes().clone();
    Submission {
        key: key.clone(),
        hash: key.hash(),
        version,
        record,
        repair,
        epoch: 1,
        token: CompletionToken { shard: 0, id },
    }
}

fn held(store: &MemoryStore, key: &Key) -> Option<Version> {
    let bytes = store.get(key, Tier::Disk).unwrap()?;
    Some(Record::decode(key, bytes).unwrap().version())
}

#[derive(Clone, Debug)]
enum Step {
    Stores(Vec<Arrival>),
    Raise { millis: u64 },
    Wait { seconds: u64 },
    Fault(Fault),
    Crash { kept: usize },
    Cool { key: usize },
}

#[derive(Clone, Debug)]
struct Arrival {
    key: usize,
    millis: u64,
    incarnation: u32,
    repair: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few versions, so that equal, older and overwritten ones come together; some beyond the permitted skew.
    let arrival = (0..3_usize, 0..40_u64, 1..3_u32, any::<bool>()).prop_map(|(key, second, incarnation, repair)| {
        Arrival { key, millis: EPOCH_MS - 5_000 + second * 1_000, incarnation, repair }
    });
    let fault = prop_oneof![
        Just(Fault::None),
        Just(Fault::DiskFull),
        any::<bool>().prop_map(|survives| Fault::SyncFails { survives })
    ];
    let step = prop_oneof![
        12 => prop::collection::vec(arrival, 1..12).prop_map(Step::Stores),
        1 => (0..60_u64).prop_map(|second| Step::Raise { millis: EPOCH_MS - 5_000 + second * 1_000 }),
        5 => (0..12_u64).prop_map(|seconds| Step::Wait { seconds }),
        1 => fault.prop_map(Step::Fault),
        2 => (0..4_usize).prop_map(|kept| Step::Crash { kept }),
        1 => (0..3_usize).prop_map(|key| Step::Cool { key }),
    ];
    prop::collection::vec(step, 1..40)
}

/// The rules, with unlimited memory and no thought for speed.
struct Specification {
    current: BTreeMap<usize, Version>,
    /// Every accept of this life, and when.
    accepted: Vec<(usize, Version, Duration)>,
    /// Whether the recent set may drop early.
    forgetful: bool,
}

impl Specification {
    fn check(&mut self, arrival: &Arrival, answer: StoreAnswer, now: Duration) {
        let version = version(arrival.millis, arrival.incarnation);
        let current = self.current.get(&arrival.key).copied();
        let now_ms = EPOCH_MS + u64::try_from(now.as_millis()).unwrap();
        if arrival.millis > now_ms + SKEW_MS {
            assert_eq!(answer, StoreAnswer::Failed(Failure::ClockSkew));
            return;
        }
        let here = current.map_or(Current::GcWatermark(Version::ZERO), Current::Record);
        if version >= here.version() {
            assert_eq!(answer, StoreAnswer::Accepted, "{version} over {here:?}");
            self.current.insert(arrival.key, version);
            self.accepted.push((arrival.key, version, now));
            return;
        }
        let before = self.accepted.iter().filter(|(key, v, _)| (*key, *v) == (arrival.key, version));
        let last = before.map(|(_, _, at)| *at).max();
        match answer {
            StoreAnswer::Accepted => assert!(last.is_some(), "{version} was never accepted here"),
            StoreAnswer::Stale(what) => {
                assert_eq!(what, here);
                assert!(last.is_none_or(|at| now > at + RETENTION), "it was accepted lately");
            }
            StoreAnswer::StaleUnknown(what) => {
                assert_eq!(what, here);
                assert!(self.forgetful, "it must be sure");
            }
            StoreAnswer::Failed(failure) => panic!("{failure:?}"),
        }
        if answer == StoreAnswer::Accepted {
            self.accepted.push((arrival.key, version, now));
        }
    }
}

/// The system and its specification, side by side.
struct World {
    keys: [Key; 3],
    store: Arc<MemoryStore>,
    committer: Committer<MemoryStore>,
    config: CommitConfig,
    now: Duration,
    specification: Specification,
    fault: Fault,
    poisoned: bool,
}

impl World {
    fn new(config: CommitConfig) -> Self {
        let store = Arc::new(MemoryStore::default());
        let committer = Committer::new(Arc::clone(&store), config, Duration::ZERO).unwrap();
        let forgetful = config.recent_entries_max < 100;
        let specification = Specification { current: BTreeMap::new(), accepted: Vec::new(), forgetful };
        Self {
            keys: keys(),
            store,
            committer,
            config,
            now: Duration::ZERO,
            specification,
            fault: Fault::None,
            poisoned: false,
        }
    }

    fn wall_ms(&self) -> u64 {
        EPOCH_MS + u64::try_from(self.now.as_millis()).unwrap()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Wait { seconds } => self.now += Duration::from_secs(*seconds),
            Step::Fault(fault) => {
                self.store.set_fault(*fault);
                self.fault = *fault;
            }
            Step::Cool { key } => self.store.make_cold(&self.keys[*key]),
            Step::Crash { kept } => self.crash(*kept),
            Step::Raise { millis } => self.raise(Hlc::from_millis(*millis)),
            Step::Stores(arrivals) => self.stores(arrivals),
        }
        let bound = self.committer.bound().load(Ordering::Relaxed);
        let persisted = self.store.metadata("clock_bound").unwrap();
        let persisted = persisted.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
        assert_eq!(bound, persisted, "what is promised is what is persisted");
        for version in self.specification.current.values() {
            assert!(version.hlc.raw() <= bound, "the bound covers what is applied");
        }
    }

    fn crash(&mut self, kept: usize) {
        self.store.crash(kept);
        self.committer = Committer::new(Arc::clone(&self.store), self.config, self.now).unwrap();
        self.fault = Fault::None;
        self.poisoned = false;
        // What survived is what a reader of the store finds; whether all that was synced did is checked by
        // `the_current_versions_agree` before any crash.
        let found = self.keys.iter().enumerate().filter_map(|(index, key)| Some((index, held(&self.store, key)?)));
        let found: BTreeMap<usize, Version> = found.collect();
        if self.config.durability == Durability::Fsync {
            for (key, version) in &self.specification.current {
                assert!(found.get(key) >= Some(version), "what was acknowledged survives");
            }
        }
        self.specification.current = found;
        self.specification.accepted.clear();
    }

    fn raise(&mut self, to: Hlc) {
        let mut done = Vec::new();
        let token = CompletionToken { shard: 1, id: 9 };
        let before = self.committer.bound().load(Ordering::Relaxed);
        let mut works = vec![Work::RaiseBound { to, token }];
        self.committer.run(&mut works, self.now, self.wall_ms(), &mut done);
        let [Completion::Raised { bound, token: told }] = done[..] else { panic!("{done:?}") };
        assert_eq!(told, token);
        match bound {
            Ok(bound) => assert!(bound >= to && bound.raw() >= before),
            Err(failure) => self.assert_faulty(failure),
        }
    }

    fn assert_faulty(&mut self, failure: Failure) {
        match (failure, self.fault, self.poisoned) {
            (Failure::DiskFull, Fault::DiskFull, false) | (Failure::Disk, _, true) => {}
            (Failure::Disk, Fault::SyncFails { .. }, false) => self.poisoned = true,
            other => panic!("{other:?}"),
        }
    }

    fn stores(&mut self, arrivals: &[Arrival]) {
        let mut works: Vec<Work> = Vec::new();
        for (id, arrival) in arrivals.iter().enumerate() {
            let version = version(arrival.millis, arrival.incarnation);
            let id = u64::try_from(id).unwrap();
            works.push(Work::Store(submission(&self.keys[arrival.key], version, arrival.repair, id)));
        }
        let mut answered = vec![0; arrivals.len()];
        while !works.is_empty() {
            let mut done = Vec::new();
            let before = works.len();
            self.committer.run(&mut works, self.now, self.wall_ms(), &mut done);
            let cold = self.committer.take_cold();
            assert_eq!(before, works.len() + done.len() + cold.len(), "everything is answered or handed out");
            for cold in cold {
                let _ = self.store.get(&cold.submission.key, Tier::Disk);
                works.push(Work::Retry { submission: cold.submission, reads: Prefetch::Ahead(cold.reads + 1) });
            }
            self.check(arrivals, &done, &mut answered);
        }
        assert!(answered.iter().all(|times| *times == 1));
        for (index, key) in self.keys.iter().enumerate() {
            let expected = self.specification.current.get(&index).copied();
            assert_eq!(held(&self.store, key), expected, "readers see what was accepted");
        }
    }

    fn check(&mut self, arrivals: &[Arrival], done: &[Completion], answered: &mut [usize]) {
        let answers = done.iter().map(|done| match done {
            Completion::Stored { token, answer } => (usize::try_from(token.id).unwrap(), *answer),
            Completion::Raised { .. } | Completion::MadeDurable { .. } => panic!("nobody asked"),
        });
        let answers: Vec<_> = answers.collect();
        for (id, _) in &answers {
            answered[*id] += 1;
        }
        let failed = |answer: &StoreAnswer| match answer {
            StoreAnswer::Failed(failure) if *failure != Failure::ClockSkew => Some(*failure),
            _ => None,
        };
        if let Some(failure) = answers.iter().find_map(|(_, answer)| failed(answer)) {
            self.assert_faulty(failure);
            assert!(answers.iter().all(|(_, answer)| matches!(answer, StoreAnswer::Failed(_))), "{answers:?}");
            return;
        }
        for (id, answer) in answers {
            self.specification.check(&arrivals[id], answer, self.now);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_what_the_rules_say(
        steps in steps(),
        batch_bytes_max in prop_oneof![Just(1), Just(130), Just(1_usize << 20)],
        entries_max in prop_oneof![2 => Just(1000), 1 => Just(3_usize)],
        durability in prop_oneof![Just(Durability::Fsync), Just(Durability::Os)],
    ) {
        let mut world =
            World::new(CommitConfig { batch_bytes_max, recent_entries_max: entries_max, durability, ..config() });
        for step in &steps {
            world.step(step);
        }
    }
}

/// One store, one second after `retention` has passed.
fn ask(committer: &mut Committer<MemoryStore>, submission: Submission) -> StoreAnswer {
    let mut done = Vec::new();
    let now = RETENTION + Duration::from_secs(1);
    committer.run(&mut vec![Work::Store(submission)], now, EPOCH_MS, &mut done);
    let [Completion::Stored { answer, .. }] = done[..] else { panic!("{done:?}") };
    answer
}

fn start(store: &Arc<MemoryStore>) -> Committer<MemoryStore> {
    Committer::new(Arc::clone(store), config(), Duration::ZERO).unwrap()
}

#[test]
fn a_damaged_record_fails_clients_and_is_repaired_by_repair_of_its_version_or_newer() {
    for unreadable in [false, true] {
        let store = Arc::new(MemoryStore::default());
        let mut committer = start(&store);
        let key = &keys()[0];
        let stored = version(EPOCH_MS - 100, 2);
        assert_eq!(ask(&mut committer, submission(key, stored, false, 0)), StoreAnswer::Accepted);
        if unreadable {
            store.make_unreadable(key);
        } else {
            assert!(store.corrupt(key, 0));
        }
        // A restart, so that nothing is above the mark.
        let mut committer = start(&store);
        let corrupt = StoreAnswer::Failed(Failure::Corrupt);
        let (older, newer) = (version(EPOCH_MS - 101, 9), version(EPOCH_MS - 99, 1));
        assert_eq!(ask(&mut committer, submission(key, older, false, 0)), corrupt);
        assert_eq!(ask(&mut committer, submission(key, newer, false, 0)), corrupt, "a client's, below the mark");
        assert_eq!(ask(&mut committer, submission(key, older, true, 0)), corrupt, "older than what it claims");
        assert_eq!(ask(&mut committer, submission(key, stored, true, 0)), StoreAnswer::Accepted);
        assert_eq!(held(&store, key), Some(stored), "mended");
        let metrics = committer.metrics();
        assert_eq!((metrics.mended.load(Ordering::Relaxed), metrics.failed(Failure::Corrupt)), (1, 3));
    }
}

#[test]
fn a_damaged_record_is_overwritten_by_what_is_above_the_mark() {
    let store = Arc::new(MemoryStore::default());
    let mut committer = start(&store);
    let key = &keys()[0];
    assert_eq!(ask(&mut committer, submission(key, version(EPOCH_MS - 100, 2), false, 0)), StoreAnswer::Accepted);
    assert!(store.corrupt(key, 0));
    let newer = version(EPOCH_MS - 99, 1);
    assert_eq!(ask(&mut committer, submission(key, newer, false, 0)), StoreAnswer::Accepted);
    assert_eq!(held(&store, key), Some(newer));
    assert_eq!(committer.metrics().point_reads.load(Ordering::Relaxed), 0, "no lookup above the mark");
}

#[test]
fn a_record_whose_very_version_is_unreadable_is_left_to_newer_writes() {
    let store = Arc::new(MemoryStore::default());
    let key = &keys()[0];
    let mut batch = Batch::default();
    batch.put(key.clone(), "no record".into());
    batch.put_metadata("clock_bound", Hlc::from_millis(EPOCH_MS).raw().to_be_bytes().to_vec());
    store.commit(&batch, Durability::Fsync).unwrap();
    let mut committer = start(&store);
    let repair = submission(key, version(EPOCH_MS - 1, 1), true, 0);
    assert_eq!(ask(&mut committer, repair), StoreAnswer::Failed(Failure::Corrupt));
    assert_eq!(ask(&mut committer, submission(key, version(EPOCH_MS + 1, 1), false, 0)), StoreAnswer::Accepted);
}

#[test]
fn a_cold_record_is_read_ahead_twice_and_then_from_the_disk() {
    let store = Arc::new(MemoryStore::default());
    let key = &keys()[0];
    let stored = version(EPOCH_MS - 100, 2);
    assert_eq!(ask(&mut start(&store), submission(key, stored, false, 0)), StoreAnswer::Accepted);
    let mut committer = start(&store);
    let mut works = vec![Work::Store(submission(key, stored, false, 0))];
    let mut done = Vec::new();
    for reads in 0..2 {
        store.make_cold(key);
        committer.run(&mut works, Duration::ZERO, EPOCH_MS, &mut done);
        assert!(done.is_empty());
        let cold = committer.take_cold().pop().unwrap();
        assert_eq!(cold.reads, reads);
        works.push(Work::Retry { submission: cold.submission, reads: Prefetch::Ahead(reads + 1) });
    }
    store.make_cold(key);
    committer.run(&mut works, Duration::ZERO, EPOCH_MS, &mut done);
    let expected = StoreAnswer::Accepted;
    assert_eq!(done, [Completion::Stored { token: CompletionToken { shard: 0, id: 0 }, answer: expected }]);
}

#[test]
fn a_cold_record_that_nobody_could_read_is_refused_unless_it_is_warm_by_now() {
    let store = Arc::new(MemoryStore::default());
    let key = &keys()[0];
    let stored = version(EPOCH_MS - 100, 2);
    assert_eq!(ask(&mut start(&store), submission(key, stored, false, 0)), StoreAnswer::Accepted);
    for (is_cold, expected) in [(true, StoreAnswer::Failed(Failure::Overloaded)), (false, StoreAnswer::Accepted)] {
        if is_cold {
            store.make_cold(key);
        }
        let mut committer = start(&store);
        let mut done = Vec::new();
        let mut works = vec![Work::Retry { submission: submission(key, stored, false, 0), reads: Prefetch::Refused }];
        committer.run(&mut works, Duration::ZERO, EPOCH_MS, &mut done);
        assert_eq!(done, [Completion::Stored { token: CompletionToken { shard: 0, id: 0 }, answer: expected }]);
        let _ = store.get(key, Tier::Disk);
    }
}

#[test]
fn the_bound_is_raised_for_free_and_only_when_it_is_near() {
    let store = Arc::new(MemoryStore::default());
    let mut committer = start(&store);
    let bound = committer.bound();
    let key = &keys()[0];
    let mut done = Vec::new();
    let mut run = |wall_ms: u64, stamp_ms: u64| {
        let work = Work::Store(submission(key, version(stamp_ms, 1), false, 0));
        committer.run(&mut vec![work], Duration::ZERO, wall_ms, &mut done);
        Hlc::from_raw(bound.load(Ordering::Relaxed)).millis() - EPOCH_MS
    };
    assert_eq!(run(EPOCH_MS, EPOCH_MS), LEAD_MS);
    assert_eq!(run(EPOCH_MS + 400, EPOCH_MS + 400), LEAD_MS, "half of the lead is left");
    assert_eq!(run(EPOCH_MS + 600, EPOCH_MS + 600), 600 + LEAD_MS);
    assert_eq!(run(EPOCH_MS + 700, EPOCH_MS + 3000), 3000 + LEAD_MS, "a stamp above it raises it");
    assert_eq!(committer.metrics().bound_raises.load(Ordering::Relaxed), 3);
}

#[test]
fn a_raise_leads_the_timestamps_where_they_are_ahead_of_the_wall_clock() {
    let store = Arc::new(MemoryStore::default());
    let mut committer = start(&store);
    let ahead = Hlc::from_millis(EPOCH_MS + 30_000);
    let mut raises = 0;
    // A thousand timestamps from a clock that a peer has moved ahead, each asking if it must.
    let mut timestamp = ahead;
    for _ in 0..1000 {
        timestamp = timestamp.tick(EPOCH_MS);
        if timestamp.raw() > committer.bound().load(Ordering::Relaxed) {
            let mut works = vec![Work::RaiseBound { to: timestamp, token: CompletionToken { shard: 0, id: 0 } }];
            committer.run(&mut works, Duration::ZERO, EPOCH_MS, &mut Vec::new());
            raises += 1;
        }
    }
    assert_eq!(raises, 1);
}

#[test]
fn a_failed_commit_raises_no_bound_and_remembers_nothing() {
    let store = Arc::new(MemoryStore::default());
    let mut committer = start(&store);
    let key = &keys()[0];
    store.set_fault(Fault::DiskFull);
    let full = StoreAnswer::Failed(Failure::DiskFull);
    let (old, new) = (version(EPOCH_MS - 100, 1), version(EPOCH_MS, 1));
    assert_eq!(ask(&mut committer, submission(key, old, false, 0)), full);
    assert_eq!(committer.bound().load(Ordering::Relaxed), 0);
    store.set_fault(Fault::None);
    assert_eq!(ask(&mut committer, submission(key, new, false, 0)), StoreAnswer::Accepted);
    let stale = StoreAnswer::Stale(Current::Record(new));
    assert_eq!(ask(&mut committer, submission(key, old, false, 0)), stale, "it was never accepted");
    assert_eq!(committer.metrics().failed(Failure::DiskFull), 1);
}

#[test]
fn works_on_one_key_within_a_batch_see_each_other() {
    let store = Arc::new(MemoryStore::default());
    let mut committer = start(&store);
    let key = &keys()[0];
    let (first, second, third) = (version(EPOCH_MS, 1), version(EPOCH_MS, 2), version(EPOCH_MS, 3));
    let arrivals = [second, first, second, third, second, first];
    let mut works: Vec<Work> =
        (0..).zip(arrivals).map(|(id, version)| Work::Store(submission(key, version, false, id))).collect();
    let mut done = Vec::new();
    committer.run(&mut works, 2 * RETENTION, EPOCH_MS, &mut done);
    let answers: Vec<_> = done
        .iter()
        .map(|done| match done {
            Completion::Stored { answer, .. } => *answer,
            Completion::Raised { .. } | Completion::MadeDurable { .. } => panic!("nobody asked"),
        })
        .collect();
    let (accepted, stale) = (StoreAnswer::Accepted, |version| StoreAnswer::Stale(Current::Record(version)));
    assert_eq!(answers, [accepted, stale(second), accepted, accepted, accepted, stale(third)]);
    assert_eq!(held(&store, key), Some(third));
}

/// Has a fact heeded, in a batch of its own.
fn make_durable(committer: &mut Committer<MemoryStore>, promise: Promise) -> Result<(), Failure> {
    let mut done = Vec::new();
    committer.run(
        &mut vec![Work::MakeDurable { promise, token: CompletionToken { shard: 0, id: 7 } }],
        LATER,
        EPOCH_MS,
        &mut done,
    );
    let [Completion::MadeDurable { token, result }] = done[..] else { panic!("{done:?}") };
    assert_eq!(token.id, 7);
    result
}

/// Long enough after the start that refusals are promises.
const LATER: Duration = Duration::from_secs(11);

fn answer(committer: &mut Committer<MemoryStore>, submission: Submission) -> StoreAnswer {
    let mut done = Vec::new();
    committer.run(&mut vec![Work::Store(submission)], LATER, EPOCH_MS, &mut done);
    let [Completion::Stored { answer, .. }] = done[..] else { panic!("{done:?}") };
    answer
}

#[test]
fn a_fence_keeps_stragglers_of_clients_out_and_lets_repair_through_also_after_a_crash() {
    let store = Arc::new(MemoryStore::default());
    let [one, other, _] = keys();
    let mut committer = start(&store);
    make_durable(&mut committer, Promise::Fence(Hlc::from_millis(1000))).unwrap();
    for _ in 0..2 {
        let nothing = Current::GcWatermark(Version::ZERO);
        let straggler = submission(&one, version(1000, u32::MAX), false, 1);
        assert_eq!(answer(&mut committer, straggler), StoreAnswer::StaleUnknown(nothing));
        // A lower one changes nothing.
        make_durable(&mut committer, Promise::Fence(Hlc::from_millis(10))).unwrap();
        store.crash(0);
        committer = start(&store);
    }
    assert_eq!(answer(&mut committer, submission(&one, version(1000, 1), true, 2)), StoreAnswer::Accepted);
    assert_eq!(answer(&mut committer, submission(&other, version(1001, 1), false, 3)), StoreAnswer::Accepted);
}

#[test]
fn a_fence_holds_for_the_rest_of_its_batch() {
    let store = Arc::new(MemoryStore::default());
    let [one, _, other] = keys();
    let mut committer = start(&store);
    let mut done = Vec::new();
    let mut works = vec![
        Work::Store(submission(&one, version(500, 1), false, 1)),
        Work::MakeDurable {
            promise: Promise::Fence(Hlc::from_millis(1000)),
            token: CompletionToken { shard: 0, id: 2 },
        },
        Work::Store(submission(&other, version(500, 1), false, 3)),
    ];
    committer.run(&mut works, LATER, EPOCH_MS, &mut done);
    let answers: Vec<StoreAnswer> = done
        .iter()
        .filter_map(|done| if let Completion::Stored { answer, .. } = done { Some(*answer) } else { None })
        .collect();
    assert_eq!(answers, [StoreAnswer::Accepted, StoreAnswer::StaleUnknown(Current::GcWatermark(Version::ZERO))]);
}

#[test]
fn a_bar_keeps_out_what_was_sent_by_an_older_layout_whatever_it_is_also_after_a_crash() {
    let store = Arc::new(MemoryStore::default());
    let [one, other, _] = keys();
    let mut committer = start(&store);
    let by = |epoch, key: &Key, repair| Submission { epoch, ..submission(key, version(500, 1), repair, 1) };
    assert_eq!(answer(&mut committer, by(1, &one, false)), StoreAnswer::Accepted);
    make_durable(&mut committer, Promise::Bar(2)).unwrap();
    for _ in 0..2 {
        assert_eq!(committer.bar().load(Ordering::Relaxed), 2);
        for repair in [false, true] {
            assert_eq!(answer(&mut committer, by(1, &other, repair)), StoreAnswer::Failed(Failure::Epoch));
            // Not even that it is there.
            assert_eq!(answer(&mut committer, by(1, &one, repair)), StoreAnswer::Failed(Failure::Epoch));
        }
        // A lower one changes nothing.
        make_durable(&mut committer, Promise::Bar(1)).unwrap();
        store.crash(0);
        committer = start(&store);
    }
    assert_eq!(held(&store, &other), None);
    assert_eq!(answer(&mut committer, by(2, &other, false)), StoreAnswer::Accepted);
}

#[test]
fn a_bar_holds_for_the_rest_of_its_batch_and_is_known_once_it_is_durable() {
    let store = Arc::new(MemoryStore::default());
    let [one, _, other] = keys();
    let mut committer = start(&store);
    let works = || {
        vec![
            Work::Store(submission(&one, version(500, 1), false, 1)),
            Work::MakeDurable { promise: Promise::Bar(2), token: CompletionToken { shard: 0, id: 2 } },
            Work::Store(submission(&other, version(500, 1), false, 3)),
        ]
    };
    store.set_fault(Fault::DiskFull);
    let mut done = Vec::new();
    committer.run(&mut works(), LATER, EPOCH_MS, &mut done);
    assert_eq!(committer.bar().load(Ordering::Relaxed), 0, "a read still has its answer");
    store.set_fault(Fault::None);
    let mut committer = start(&store);
    done.clear();
    committer.run(&mut works(), LATER, EPOCH_MS, &mut done);
    let stored = |done: &Completion| match done {
        Completion::Stored { answer, .. } => Some(*answer),
        _ => None,
    };
    let answers: Vec<StoreAnswer> = done.iter().filter_map(stored).collect();
    assert_eq!(answers, [StoreAnswer::Accepted, StoreAnswer::Failed(Failure::Epoch)]);
    assert_eq!((committer.bar().load(Ordering::Relaxed), held(&store, &other)), (2, None));
}

#[test]
fn a_bar_whose_commit_failed_is_synced_with_the_next_one_before_it_is_known() {
    let store = Arc::new(MemoryStore::default());
    let [one, _, _] = keys();
    let unsynced = CommitConfig { durability: Durability::Os, ..config() };
    let mut committer = Committer::new(store.clone(), unsynced, Duration::ZERO).unwrap();
    store.set_fault(Fault::DiskFull);
    assert_eq!(make_durable(&mut committer, Promise::Bar(2)), Err(Failure::DiskFull));
    store.set_fault(Fault::None);
    let newer = Submission { epoch: 2, ..submission(&one, version(500, 1), false, 1) };
    assert_eq!(answer(&mut committer, newer), StoreAnswer::Accepted);
    assert_eq!(committer.bar().load(Ordering::Relaxed), 2);
    store.crash(0);
    assert_eq!(start(&store).bar().load(Ordering::Relaxed), 2, "reads have been refused by it");
}

#[test]
fn a_gc_watermark_is_what_an_absent_key_answers_and_no_mark_is_below_it() {
    let store = Arc::new(MemoryStore::default());
    let [key, _, _] = keys();
    let mut committer = start(&store);
    let partitions: PartitionSet = [key.hash().partition()].into_iter().collect();
    make_durable(&mut committer, Promise::GcWatermarks(partitions, Hlc::from_millis(1000))).unwrap();
    let gc_watermark = Current::GcWatermark(version(1000, u32::MAX));
    for _ in 0..2 {
        for repair in [false, true] {
            let old = submission(&key, version(1000, 1), repair, 1);
            assert_eq!(
                answer(&mut committer, old),
                StoreAnswer::Stale(gc_watermark),
                "below the floor, from any sender"
            );
        }
        store.crash(0);
        committer = start(&store);
    }
    let found = find(&*store, &key, Tier::Disk).unwrap();
    assert_eq!(found, Held::Absent { gc_watermark: gc_watermark.version() });
    assert_eq!(answer(&mut committer, submission(&key, version(1001, 1), false, 2)), StoreAnswer::Accepted);
}

#[test]
fn a_gc_watermark_that_could_not_be_made_durable_drops_nothing() {
    let store = Arc::new(MemoryStore::default());
    let [key, _, _] = keys();
    let mut committer = start(&store);
    let record = Record::tombstone(&key, version(500, 1), 3).bytes().clone();
    let token = CompletionToken { shard: 0, id: 1 };
    let tombstone = Submission {
        key: key.clone(),
        hash: key.hash(),
        version: version(500, 1),
        record,
        repair: false,
        epoch: 1,
        token,
    };
    assert_eq!(answer(&mut committer, tombstone), StoreAnswer::Accepted);
    let gc_watermarks = || Promise::GcWatermarks(PartitionSet::all(), Hlc::from_millis(1000));
    store.set_fault(Fault::DiskFull);
    assert_eq!(make_durable(&mut committer, gc_watermarks()), Err(Failure::DiskFull));
    store.set_fault(Fault::None);
    store.compact().unwrap();
    assert_eq!(held(&store, &key), Some(version(500, 1)));
    make_durable(&mut committer, gc_watermarks()).unwrap();
    store.compact().unwrap();
    assert_eq!(held(&store, &key), None);
    assert_eq!(store.stats().dropped, 1);
}
