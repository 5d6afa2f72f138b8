//! Drives the machine and the facts side by side through everything that can happen.
//!
//! Every order is covered: two orders are merged only where they have led to the same state of the machine
//! *and* to the same facts of every replica, from which on they cannot differ. With `renaming`, for five
//! replicas, they are merged already where the facts are the same up to the names of replicas that all
//! records treat alike: that assumes, and does not show, that the machine has no other favourites. (That
//! it asks the lowest rank first is in the specification, and so compared.)

use std::collections::HashSet;
use std::fmt::{Debug, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use kvorum_core::quorum::read::{Clocks, Read, ReadCommand};
use kvorum_core::quorum::step::MovingQuorum;
use kvorum_core::quorum::{
    Addressed, Current, Failure, Held, Quorum, Rank, ReadAnswer, ReplicaSet, StoreAnswer, Wanted,
};
use kvorum_core::version::{Hlc, Incarnation, Version};
use kvorum_core::{Key, Record};

use crate::spec::{Facts, First, Heard, Said, StoreHeard, Stored, Told};

/// One family of reads: what is asked, and what replicas may answer.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub ack: u8,
    pub from: u8,
    /// Of a key that moves: the replicas that it will have.
    pub next: Vec<u8>,
    pub first: Vec<u8>,
    pub record_from: u8,
    /// Versions that replicas may hold, with the `from` of each one's record.
    pub versions: Vec<(u64, usize)>,
    /// Those of them that are deletions.
    pub tombstones: Vec<u64>,
    pub gc_watermarks: Vec<u64>,
    /// Whether a write-back may find something newer.
    pub refusals: bool,
    /// Whether the hedge's timer may fire.
    pub hedge: bool,
    /// Whether duplicates and strangers are mixed in.
    pub noise: bool,
    /// Whether states that differ only in the names of replicas are explored once.
    pub renaming: bool,
}

impl Scenario {
    /// Reads of `ack` of `from` that may find records of `versions` and `gc_watermarks`, ask the first replicas first,
    /// and get everything but noise.
    pub fn new(ack: u8, from: u8, versions: &[(u64, usize)], gc_watermarks: &[u64]) -> Self {
        let (versions, gc_watermarks) = (versions.to_vec(), gc_watermarks.to_vec());
        let (first, record_from) = ((0..ack).collect(), 0);
        Self {
            ack,
            from,
            next: vec![],
            first,
            record_from,
            versions,
            tombstones: vec![],
            gc_watermarks,
            refusals: true,
            hedge: true,
            noise: false,
            renaming: false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Read { rank: usize, heard: Heard },
    Store { rank: usize, version: u64, heard: StoreHeard },
    Hedge,
}

/// Explores one scenario.
pub struct Explorer {
    scenario: Scenario,
    records: Vec<(u64, Record)>,
    seen: HashSet<(u64, u64)>,
    /// How many reads ended with an answer, absent, hopeless.
    pub endings: [u64; 3],
}

impl Explorer {
    pub fn run(scenario: &Scenario) -> Self {
        let key = Key::new(Bytes::from_static(b"k")).unwrap();
        let build = |(number, from): &(u64, usize)| {
            let (version, from) = (version(*number), u8::try_from(*from).unwrap());
            let deletion = scenario.tombstones.contains(number);
            let value = || Record::value(&key, version, from, None, &[]);
            (*number, if deletion { Record::tombstone(&key, version, from) } else { value() })
        };
        let records = scenario.versions.iter().map(build).collect();
        let mut explorer = Self { scenario: scenario.clone(), records, seen: HashSet::new(), endings: [0; 3] };
        let quorum = Quorum::new(scenario.ack, scenario.from).unwrap();
        if scenario.next.is_empty() {
            explorer.start(quorum);
        } else {
            let next = scenario.next.iter().copied().map(Rank).collect();
            explorer.start(MovingQuorum::new(quorum, scenario.from, next));
        }
        explorer
    }

    pub fn states(&self) -> usize {
        self.seen.len()
    }

    fn start<A: Addressed + Clone + Debug>(&mut self, addressed: A) {
        let Scenario { ack, from, record_from, .. } = self.scenario;
        let mut first = ReplicaSet::EMPTY;
        self.scenario.first.iter().for_each(|rank| _ = first.insert(Rank(*rank)));
        let mut read = Read::new(addressed, first, Rank(record_from));
        let said = listen(|sink| read.start(sink));
        let ranks = |ranks: &[u8]| ranks.iter().copied().map(usize::from).collect::<Vec<_>>();
        let groups = [(0..usize::from(from)).collect(), ranks(&self.scenario.next)];
        let groups = if self.scenario.next.is_empty() { &groups[..1] } else { &groups[..] };
        let mut facts = Facts::new(usize::from(ack), groups, &self.scenario.versions, &self.scenario.tombstones);
        let ask = |rank: &u8| Said::Ask { rank: usize::from(*rank), record: *rank == record_from };
        assert_eq!(said, self.scenario.first.iter().map(ask).collect::<Vec<_>>());
        said.into_iter().for_each(|said| facts.say(said));
        let mut stack = vec![(read, facts)];
        while let Some((read, facts)) = stack.pop() {
            let events = self.events(&facts);
            // Nothing outstanding and still no answer would be a read that waits for nothing.
            assert!(facts.over || !events.is_empty(), "{:?} waits for nothing: {facts:?}", self.scenario);
            for event in events {
                let (mut read, mut facts) = (read.clone(), facts.clone());
                self.step(&mut read, &mut facts, event);
                if self.seen.insert(self.key(&read, &facts)) {
                    stack.push((read, facts));
                }
            }
        }
    }

    fn key<A: Addressed + Clone + Debug>(&self, read: &Read<A>, facts: &Facts) -> (u64, u64) {
        if !self.scenario.renaming {
            return (digest(read), hash(facts));
        }
        let class = |rank: usize| self.scenario.versions.iter().filter(|(_, from)| rank < *from).count();
        let mut replicas: Vec<(usize, u64)> =
            facts.replicas.iter().enumerate().map(|(rank, replica)| (class(rank), hash(replica))).collect();
        replicas.sort_unstable();
        (hash(&replicas), hash(&(facts.in_hand, facts.target, facts.hedged, facts.over)))
    }

    fn step<A: Addressed + Clone + Debug>(&mut self, read: &mut Read<A>, facts: &mut Facts, event: Event) {
        if self.scenario.noise {
            self.make_noise(read, facts);
        }
        let context = facts.clone();
        let said = self.deliver(read, event);
        let due = match event {
            Event::Read { rank, heard } => {
                facts.hear(rank, heard);
                facts.due()
            }
            Event::Store { rank, version, heard } => {
                facts.hear_store(rank, version, heard);
                facts.due()
            }
            Event::Hedge => {
                facts.hedged = true;
                facts.due_on_hedge()
            }
        };
        assert_eq!(said, due, "{:?}\n{event:?} after {context:#?}", self.scenario);
        for said in said {
            self.check_promises(facts, said);
        }
        if facts.over && !context.over {
            self.check_afterwards(read, facts, &due);
        }
    }

    fn deliver<A: Addressed + Clone + Debug>(&self, read: &mut Read<A>, event: Event) -> Vec<Said> {
        match event {
            Event::Read { rank, heard } => {
                let answer = match heard {
                    Heard::Record(number) => ReadAnswer::Held(Held::Record(self.record(number))),
                    Heard::Version(number) => ReadAnswer::Version { version: version(number), from: 1 },
                    Heard::Absent(gc_watermark) => {
                        ReadAnswer::Held(Held::Absent { gc_watermark: version(gc_watermark) })
                    }
                    Heard::Failed => ReadAnswer::Failed(failure(rank)),
                };
                listen(|sink| read.on_read(replica(rank), answer, CLOCKS, sink))
            }
            Event::Store { rank, version: number, heard } => {
                let answer = match heard {
                    StoreHeard::Accepted => StoreAnswer::Accepted,
                    StoreHeard::Newer(told) => newer(rank, told),
                    StoreHeard::Failed => StoreAnswer::Failed(failure(rank)),
                };
                listen(|sink| read.on_store(replica(rank), version(number), answer, CLOCKS, sink))
            }
            Event::Hedge => listen(|sink| read.on_hedge(sink)),
        }
    }

    fn record(&self, number: u64) -> Record {
        self.records.iter().find(|(other, _)| *other == number).map(|(_, record)| record.clone()).unwrap()
    }

    /// Everything that can happen next.
    fn events(&self, facts: &Facts) -> Vec<Event> {
        if facts.over {
            return vec![];
        }
        let mut events = Vec::new();
        if self.scenario.hedge && !facts.hedged {
            events.push(Event::Hedge);
        }
        for (rank, replica) in facts.replicas.iter().enumerate() {
            let mut push = |heard| events.push(Event::Read { rank, heard });
            if let First::Asked { record } = replica.first {
                let held = self.scenario.versions.iter().map(|(version, _)| *version);
                held.map(|v| if record { Heard::Record(v) } else { Heard::Version(v) }).for_each(&mut push);
                self.scenario.gc_watermarks.iter().for_each(|gc_watermark| push(Heard::Absent(*gc_watermark)));
                push(Heard::Failed);
            }
            if replica.fetch {
                self.at_or_above(replica.told.map_or(0, Told::version)).for_each(|told| {
                    push(match told {
                        Told::Record(version) => Heard::Record(version),
                        Told::GcWatermark(gc_watermark) => Heard::Absent(gc_watermark),
                    });
                });
                push(Heard::Failed);
            }
            for (version, _) in replica.stores.iter().filter(|(_, stored)| *stored == Stored::Sent) {
                let mut push = |heard| events.push(Event::Store { rank, version: *version, heard });
                push(StoreHeard::Accepted);
                push(StoreHeard::Failed);
                if self.scenario.refusals {
                    let newer = self.at_or_above(*version).filter(|told| *told != Told::Record(*version));
                    newer.for_each(|told| push(StoreHeard::Newer(told)));
                }
            }
        }
        events
    }

    fn at_or_above(&self, version: u64) -> impl Iterator<Item = Told> {
        let records = self.scenario.versions.iter().map(|(version, _)| Told::Record(*version));
        let gc_watermarks = self.scenario.gc_watermarks.iter().map(|gc_watermark| Told::GcWatermark(*gc_watermark));
        records.chain(gc_watermarks).filter(move |told| told.version() >= version)
    }

    /// What must change nothing: answers without a request, duplicates, ranks that were not addressed.
    fn make_noise<A: Addressed + Clone + Debug>(&self, read: &mut Read<A>, facts: &Facts) {
        let handshake_error = facts.replicas.len();
        let mut quiet: Vec<usize> = vec![handshake_error];
        for (rank, replica) in facts.replicas.iter().enumerate() {
            if !matches!(replica.first, First::Asked { .. }) && !replica.fetch {
                quiet.push(rank);
            }
            for (version, stored) in &replica.stores {
                let heard = match stored {
                    Stored::Sent => continue,
                    Stored::Accepted => StoreHeard::Accepted,
                    Stored::Refused => StoreHeard::Failed,
                };
                assert_eq!(self.deliver(read, Event::Store { rank, version: *version, heard }), vec![]);
            }
        }
        for rank in quiet {
            for heard in [Heard::Failed, Heard::Absent(9), Heard::Version(9)] {
                assert_eq!(self.deliver(read, Event::Read { rank, heard }), vec![]);
            }
        }
    }

    /// What an answer means, whatever the rules that lead to it.
    fn check_promises(&mut self, facts: &Facts, said: Said) {
        match said {
            Said::Answer(version) => {
                self.endings[0] += 1;
                assert!(facts.has_voters(), "too few answers");
                assert_eq!(facts.newest(), Some(version), "something newer was known");
                assert!(!facts.is_quorum() || facts.majority_holds(version), "held by less than a majority");
            }
            Said::Absent(gc_watermark) => {
                self.endings[1] += 1;
                assert!(facts.has_voters(), "too few answers");
                let deleted = |version| facts.tombstones.contains(&version) || !facts.is_quorum();
                let explained = |version| deleted(version) && version <= gc_watermark;
                assert!(facts.newest().is_none_or(explained), "something is there");
            }
            Said::Hopeless => self.endings[2] += 1,
            Said::Ask { rank, record } => {
                assert!(!facts.replicas[rank].failed, "a failed replica is asked again");
                let known = facts.replicas[rank].told.map(Told::version);
                assert!(!record || known.is_none() || known > facts.in_hand, "a record in hand is fetched");
            }
            Said::Store { rank, version } => {
                assert!(facts.in_hand == Some(version) && !facts.replicas[rank].failed);
                let copy_asked_for = facts.shall_hold(rank, version);
                assert!(copy_asked_for || facts.replicas[rank].told.is_some_and(Told::is_record), "an extra copy");
            }
        }
    }

    /// After the answer: which replicas to repair, and silence whatever comes.
    fn check_afterwards<A: Addressed + Clone + Debug>(&self, read: &Read<A>, facts: &Facts, said: &[Said]) {
        let (mut mend, mut outdated) = (ReplicaSet::EMPTY, ReplicaSet::EMPTY);
        if let [Said::Answer(version)] = said {
            for (rank, known) in facts.replicas.iter().enumerate() {
                if known.said_failed && failure(rank) == Failure::Corrupt {
                    mend.insert(replica(rank));
                }
                let older = known.told.is_some_and(|told| told.version() < *version);
                let shall = facts.shall_hold(rank, *version) || known.told.is_some_and(Told::is_record);
                if older && shall && !facts.holds(rank, *version) {
                    outdated.insert(replica(rank));
                }
            }
        }
        assert_eq!((read.to_repair(), read.outdated()), (mend, outdated), "{:?}: {facts:#?}", self.scenario);
        let mut read = read.clone();
        for event in self.events(&Facts { over: false, ..facts.clone() }) {
            assert_eq!(self.deliver(&mut read, event), vec![], "after the end: {event:?}");
        }
    }
}

/// Nothing here ends: that is explored in `quorum_expiry.rs`.
const CLOCKS: Clocks<'static> = Clocks { replica: Hlc::ZERO, own: &|| Hlc::ZERO };

fn replica(rank: usize) -> Rank {
    Rank(u8::try_from(rank).unwrap())
}

fn version(number: u64) -> Version {
    if number == 0 { Version::ZERO } else { Version { hlc: Hlc::from_raw(number), incarnation: Incarnation(7) } }
}

/// Kinds that the machine must treat alike are spread over the ranks.
fn failure(rank: usize) -> Failure {
    if rank.is_multiple_of(2) { Failure::Corrupt } else { Failure::Unreachable }
}

/// A promise means nothing to a reader: replicas give one or none by their rank.
fn newer(rank: usize, told: Told) -> StoreAnswer {
    let current = match told {
        Told::Record(number) => Current::Record(version(number)),
        Told::GcWatermark(number) => Current::GcWatermark(version(number)),
    };
    if rank.is_multiple_of(2) { StoreAnswer::Stale(current) } else { StoreAnswer::StaleUnknown(current) }
}

fn listen(run: impl FnOnce(&mut dyn FnMut(ReadCommand))) -> Vec<Said> {
    let mut said = Vec::new();
    run(&mut |command| {
        said.push(match command {
            ReadCommand::Ask { rank, wanted } => {
                Said::Ask { rank: usize::from(rank.0), record: wanted == Wanted::Record }
            }
            ReadCommand::Store { rank, record } => {
                Said::Store { rank: usize::from(rank.0), version: record.version().hlc.raw() }
            }
            ReadCommand::Done(Held::Record(record), _) => Said::Answer(record.version().hlc.raw()),
            ReadCommand::Done(Held::Absent { gc_watermark }, _) => Said::Absent(gc_watermark.hlc.raw()),
            ReadCommand::Hopeless => Said::Hopeless,
        });
    });
    said
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The whole state of the machine, by its debug form.
fn digest(read: &impl Debug) -> u64 {
    struct Digest(DefaultHasher);
    impl std::fmt::Write for Digest {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut digest = Digest(DefaultHasher::new());
    write!(digest, "{read:?}").unwrap();
    digest.0.finish()
}
