//! One GET: which replicas to ask, when a version is known to be held well enough, what to answer.
//!
//! Owns what each replica is known to hold and what has been asked of it. The coordinator carries out
//! the [`ReadCommand`]s, feeds in the outcome of each (once, matched by its request id; records checked) and keeps the
//! deadline. What comes twice all the same costs at most the answer, never its truth.
//!
//! Promises: at quorum, [`ReadCommand::Done`] never carries a version that is not known to be held by a
//! majority, so that no later quorum read returns an older one; and never one older than what a
//! majority held when the read began. Below quorum: the newest of `ack` answers. It sends nothing after its answer:
//! [`Read::outdated`] and [`Read::to_repair`] say which replicas the coordinator should send to.
//!
//! A value may end ([`Record::expires_ms`]). At quorum, no read that begins after another has answered that it has
//! ended finds it still there: a value has ended when a *majority* of the replicas' clocks says so, and those clocks go
//! back by nothing, not even a restart. Where some clocks have passed the end and others have not, the others are asked
//! to follow: one round trip more, for values that are just ending.
//!
//! How: everything is derived again from what is known with each answer. Known is, for each replica, the newest thing
//! that it has reported to hold; the newest record known is the *target*. A replica that cannot give the record it
//! reported is treated as if it had never answered: any `ack` other answers are as good, because each of them was true
//! after the read began.
//!
//! A GC watermark is no such answer: it says that what a replica lacks was superseded, not whether by a deletion or
//! by a newer value that the same replica lacks too. So a value at or below it is not taken for deleted;
//! its holders are asked once more (to answer `404` at once could miss an overwritten key, as a random history showed:
//! `docs/decisions/0014-a-floor-is-no-deletion.md`).
//!
//! Invariants: only answers to reads and refusals (which report what is held *now*) count toward `ack`; an `Accepted`
//! does not, since it may be of the past; the record in hand is never fetched twice; a failed replica is neither asked
//! nor counted again; nothing follows `Done` or `Hopeless`.
//!
//! Source: Attiya, Bar-Noy, Dolev (1995); `docs/explanation/consistency.md`, "The protocol".

use super::known::Known;
use super::rules;
use super::rules::ClocksAtEnd;
use crate::quorum::{
    Addressed, Current, Expiry, Failure, Held, Quorum, Rank, ReadAnswer, ReplicaSet, StoreAnswer, Wanted, majority,
};
use crate::record::Record;
use crate::version::{Hlc, Version};

/// What the coordinator has to do.
#[derive(Clone, Debug)]
pub enum ReadCommand {
    /// Ask this replica, perhaps for the second time.
    Ask {
        /// Which.
        rank: Rank,
        /// For what.
        wanted: Wanted,
    },
    /// Write the newest record back to this replica (exempt from its fence).
    Store {
        /// To which.
        rank: Rank,
        /// What.
        record: Record,
    },
    /// Answer the client.
    Done(Held<Record>, Expiry),
    /// Too many replicas have failed: `504` at once instead of at the deadline.
    Hopeless,
}

/// The clocks at an answer.
#[derive(Clone, Copy)]
pub struct Clocks<'a> {
    /// The replica's, durable there, after what it answers was so. [`Hlc::ZERO`] where it has given no answer.
    pub replica: Hlc,
    /// The coordinator's, which is brought to the present: asked only where a value has an end.
    pub own: &'a dyn Fn() -> Hlc,
}

/// The state of one read, of a key that stays where it is or, with other `A`, of one that moves. No allocation for up
/// to eight replicas.
#[derive(Clone, Debug)]
pub struct Read<A = Quorum> {
    addressed: A,
    record_from: Rank,
    known: Known,
    /// Asked at least once, or has reported without that what it holds.
    asked: ReplicaSet,
    /// Asked what they hold, and not yet answered.
    pending: ReplicaSet,
    /// Those of `pending` that were asked for the record.
    pending_record: ReplicaSet,
    /// Known to hold the target, asked for the record, and not yet answered.
    fetching: ReplicaSet,
    /// Asked once more because a GC watermark has overtaken their answer.
    asked_again: ReplicaSet,
    /// Their answers count for nothing in this read.
    failed: ReplicaSet,
    /// Those of `failed` whose copy is damaged.
    corrupt: ReplicaSet,
    /// The newest record received; after the end the one answered, if one was.
    record: Option<Record>,
    target: TargetProgress,
    closed: bool,
}

/// What has been done about the target.
#[derive(Clone, Copy, Debug, Default)]
struct TargetProgress {
    version: Version,
    /// Written back to these.
    sent: ReplicaSet,
    accepted: ReplicaSet,
    /// Answered, and will not hold it by this.
    refused: ReplicaSet,
    /// Asked to have their clocks follow one that has passed its end.
    clocks_asked: ReplicaSet,
    /// Those of them that owed another answer then, which comes first.
    clocks_queued: ReplicaSet,
}

impl<A: Addressed> Read<A> {
    /// A read that asks `first` (as many as it needs, the fastest, as the caller counts) and among them `record_from`
    /// for the record.
    ///
    /// # Panics
    /// If `first` is too small, is not a part of those addressed, or lacks `record_from`.
    #[must_use]
    pub fn new(addressed: A, first: ReplicaSet, record_from: Rank) -> Self {
        let all = addressed.all();
        assert!(has_enough(&addressed, first) && first.minus(all).is_empty(), "a read asks ack to from replicas");
        assert!(first.contains(record_from), "the record is asked from one of those asked");
        Self {
            addressed,
            record_from,
            known: Known::new(all.len()),
            asked: first,
            pending: first,
            pending_record: ReplicaSet::EMPTY,
            fetching: ReplicaSet::EMPTY,
            asked_again: ReplicaSet::EMPTY,
            failed: ReplicaSet::EMPTY,
            corrupt: ReplicaSet::EMPTY,
            record: None,
            target: TargetProgress::default(),
            closed: false,
        }
    }

    /// Asks the first replicas. To be called once, before anything else.
    pub fn start(&mut self, sink: &mut dyn FnMut(ReadCommand)) {
        self.pending_record.insert(self.record_from);
        for rank in self.asked.iter() {
            sink(ReadCommand::Ask {
                rank,
                wanted: if rank == self.record_from { Wanted::Record } else { Wanted::Version },
            });
        }
    }

    /// The hedge's delay has passed without an answer to the client: asks all not asked yet, and where the record is
    /// being fetched, one more holder. May be called again.
    pub fn on_hedge(&mut self, sink: &mut dyn FnMut(ReadCommand)) {
        if self.closed {
            return;
        }
        // A replica that has not sent the newest record by now may be the slow one: ask another for it as well.
        let newest = self.newest();
        let wanted = !self.has_record(newest);
        self.ask_rest(wanted, sink);
        if let Some(version) = newest
            && wanted
            && has_enough(&self.addressed, self.answered())
        {
            self.fetch_from_next(version, sink);
        }
    }

    /// A replica's answer to an [`ReadCommand::Ask`], or the failure to get one. What was not asked and
    /// duplicates count for nothing; what comes after the end only completes [`Read::outdated`] and
    /// [`Read::to_repair`].
    pub fn on_read(
        &mut self,
        rank: Rank,
        answer: ReadAnswer<Record>,
        clocks: Clocks<'_>,
        sink: &mut dyn FnMut(ReadCommand),
    ) {
        if !(self.pending.contains(rank) || self.fetching.contains(rank)) {
            return;
        }
        let has_record = !matches!(answer, ReadAnswer::Version { .. });
        let current = match answer {
            ReadAnswer::Failed(failure) => {
                self.fail(rank, failure);
                return self.evaluate(clocks.own, sink);
            }
            // A fetch is not answered by a version: a duplicate of the answer before it.
            ReadAnswer::Version { .. } if !self.pending.contains(rank) => return,
            ReadAnswer::Version { version, .. } => Current::Record(version),
            ReadAnswer::Held(Held::Absent { gc_watermark }) => Current::GcWatermark(gc_watermark),
            ReadAnswer::Held(Held::Record(record)) => {
                let version = record.version();
                self.keep(record);
                Current::Record(version)
            }
        };
        if self.target.clocks_queued.contains(rank) {
            self.target.clocks_queued.remove(rank);
        } else {
            self.pending.remove(rank);
        }
        self.pending_record.remove(rank);
        // What is older than the replica's answer before was overtaken on the way: it is no answer to the fetch, which
        // came after.
        if self.learn(rank, current, clocks.replica) && has_record {
            self.fetching.remove(rank);
        }
        self.evaluate(clocks.own, sink);
    }

    /// A replica's answer to a [`ReadCommand::Store`] of `version`.
    pub fn on_store(
        &mut self,
        rank: Rank,
        version: Version,
        answer: StoreAnswer,
        clocks: Clocks<'_>,
        sink: &mut dyn FnMut(ReadCommand),
    ) {
        if !self.addressed.all().contains(rank) || self.failed.contains(rank) {
            return;
        }
        let is_target = version == self.target.version;
        let answer = if rules::is_copy(answer) { StoreAnswer::Accepted } else { answer };
        let progress = &mut self.target;
        match answer {
            // It holds the version, or has held it and holds something newer: one more of the majority.
            StoreAnswer::Accepted if is_target => _ = progress.accepted.insert(rank),
            StoreAnswer::Accepted => {}
            // It will not hold it by this write-back. What it answered to the read stays true.
            _ if is_target => _ = progress.refused.insert(rank),
            _ => {}
        }
        // Something newer is durable there, promise or not: the replica's answer to a read as of now.
        if let StoreAnswer::Stale(current) | StoreAnswer::StaleUnknown(current) = answer
            && current.version() >= version
        {
            self.asked.insert(rank);
            self.learn(rank, current, clocks.replica);
        }
        self.evaluate(clocks.own, sink);
    }

    /// After the answer: the replicas that are known to lack the record answered. Those that hold something
    /// older, and those that hold nothing if they are among the record's first `from`: so that read repair
    /// gives a record exactly the copies it asked for. Empty before the answer and where nothing was found.
    #[must_use]
    pub fn outdated(&self) -> ReplicaSet {
        let Some(record) = self.answered_record() else { return ReplicaSet::EMPTY };
        let version = record.version();
        let older = self.known.filter(|current| current.version() < version);
        let records = self.known.filter(|current| matches!(current, Current::Record(_)));
        older.and(records.or(union(&self.addressed.scopes(record.from())))).minus(self.target.accepted)
    }

    /// After the answer: the replicas whose copy is damaged, to be given the record answered. They held
    /// something, so whatever its `from`. Empty before the answer and where nothing was found.
    #[must_use]
    pub fn to_repair(&self) -> ReplicaSet {
        if self.answered_record().is_some() { self.corrupt } else { ReplicaSet::EMPTY }
    }

    /// The replicas that have answered this read with something that counts.
    #[must_use]
    pub fn answered(&self) -> ReplicaSet {
        self.known.filter(|_| true)
    }

    /// After the answer: the record answered, if one was found.
    #[must_use]
    pub fn answered_record(&self) -> Option<&Record> {
        self.record.as_ref().filter(|_| self.closed)
    }

    /// Remembers the newest record received; the one answered stays.
    fn keep(&mut self, record: Record) {
        if !self.closed && self.record.as_ref().is_none_or(|kept| kept.version() < record.version()) {
            self.record = Some(record);
        }
    }

    /// Whether `current` is at least as new as what was known of the replica, and so known now. Its clock is what the
    /// latest of its answers shows.
    #[inline]
    fn learn(&mut self, rank: Rank, current: Current, clock: Hlc) -> bool {
        // Of a record and a GC watermark of one version the GC watermark came later: a GC watermark never gives way to
        // it.
        let age = |current: Current| (current.version(), matches!(current, Current::GcWatermark(_)));
        let newer = self.known.get(rank).is_none_or(|known| age(known) <= age(current));
        if newer {
            self.known.set(rank, Some(current));
        }
        self.known.raise_clock(rank, clock);
        newer
    }

    /// The replica counts for nothing from now on, as if it had never answered: any `ack` others do as well, and what
    /// only it held cannot have been acknowledged by a majority that they would miss.
    fn fail(&mut self, rank: Rank, failure: Failure) {
        self.exclude(rank);
        if failure == Failure::Corrupt {
            self.corrupt.insert(rank);
        }
    }

    fn exclude(&mut self, rank: Rank) {
        self.pending.remove(rank);
        self.pending_record.remove(rank);
        self.fetching.remove(rank);
        self.failed.insert(rank);
        self.known.set(rank, None);
    }

    /// The newest version known: of the replicas' answers and of the record in hand, which outlives the failure of the
    /// replica that sent it.
    fn newest(&self) -> Option<Version> {
        let told = self.known.iter().filter_map(|(_, current)| match current {
            Current::Record(version) => Some(version),
            Current::GcWatermark(_) => None,
        });
        told.chain(self.record.as_ref().map(Record::version)).max()
    }

    /// The greatest GC watermark among the answers of `among`.
    fn gc_watermark(&self, among: ReplicaSet) -> Option<Version> {
        let gc_watermarks = self.known.iter().filter_map(|(rank, current)| match current {
            Current::GcWatermark(version) if among.contains(rank) => Some(version),
            _ => None,
        });
        gc_watermarks.max()
    }

    fn has_record(&self, version: Option<Version>) -> bool {
        self.record.as_ref().map(Record::version) == version && version.is_some()
    }

    /// What follows from what is known: the clauses in their order.
    fn evaluate(&mut self, own_clock: &dyn Fn() -> Hlc, sink: &mut dyn FnMut(ReadCommand)) {
        if self.closed {
            return;
        }
        // Without failures there are enough: the first ones asked were.
        if !self.failed.is_empty() && !has_enough(&self.addressed, self.addressed.all().minus(self.failed)) {
            return self.close(ReadCommand::Hopeless, sink);
        }
        let newest = self.newest();
        if !rules::has_enough_answers(&self.addressed, self.answered()) {
            // Not enough answers yet. A failed one is replaced at once; the record is asked for again only if no
            // replica that may still send it was asked.
            if !self.failed.is_empty() {
                self.ask_rest(self.pending_record.is_empty() && !self.has_record(newest), sink);
            }
            return;
        }
        match (newest, self.record.clone()) {
            (None, _) => self.answer_absent(sink),
            (Some(version), Some(record)) if record.version() == version => self.conclude(record, own_clock, sink),
            (Some(version), _) => {
                if self.holders(version).and(self.fetching).is_empty() {
                    self.fetch_from_next(version, sink);
                }
            }
        }
    }

    /// The newest record known is in hand.
    fn conclude(&mut self, record: Record, own_clock: &dyn Fn() -> Hlc, sink: &mut dyn FnMut(ReadCommand)) {
        let version = record.version();
        let scopes = self.addressed.scopes(record.from());
        let (scopes, is_quorum) = (scopes.as_ref(), self.addressed.quorum().is_quorum());
        // 2. A replica that should hold it has nothing, and a GC watermark at or above it: it was superseded before
        //    the GC watermark rose. By a deletion, if it is one, or ended before the GC watermark's clock; below quorum
        //    that is near enough.
        let judging = scopes.first().copied().unwrap_or_default();
        if let Some(gc_watermark) = self.gc_watermark(judging).filter(|gc_watermark| *gc_watermark >= version) {
            if record.is_deleted(|| gc_watermark.hlc.millis()) || !is_quorum {
                return self.answer_absent(sink);
            }
            return self.ask_again(version, own_clock, sink);
        }
        if self.target.version != version {
            self.target = TargetProgress { version, ..TargetProgress::default() };
        }
        // 1. A majority holds it (what the others hold is older, and every later quorum read will find it). Below
        //    quorum the client has chosen not to wait for that.
        let confirmed = self.holders(version).or(self.target.accepted).minus(self.failed);
        let absent = || self.known.filter(|current| matches!(current, Current::GcWatermark(_)));
        let held = rules::holders(confirmed, self.target.sent, absent);
        if scopes.iter().all(|scope| rules::may_be_answered(held.and(*scope).len(), scope.len(), is_quorum))
            || rules::needs_no_holders(|| record.expires_ms().is_some_and(|end| end <= own_clock().millis()))
        {
            return self.answer(record, own_clock, sink);
        }
        // 3. It may be half written: make a majority hold it before it is answered.
        let records = self.known.filter(|current| matches!(current, Current::Record(_)));
        let owed = union(&scopes).or(records).minus(held).minus(self.failed).minus(self.target.sent);
        let possible = held.or(owed).or(self.target.sent.minus(self.target.refused).minus(self.failed));
        if scopes.iter().any(|scope| possible.and(*scope).len() < majority(scope.len())) {
            return self.close(ReadCommand::Hopeless, sink);
        }
        // A replica not asked may hold it: that answer costs less than another store, and no sync.
        self.ask_rest(false, sink);
        for rank in owed.and(self.answered()).iter() {
            self.target.sent.insert(rank);
            sink(ReadCommand::Store { rank, record: record.clone() });
        }
    }

    /// The target is held well enough: what is left is whether its value has ended.
    fn answer(&mut self, record: Record, own_clock: &dyn Fn() -> Hlc, sink: &mut dyn FnMut(ReadCommand)) {
        let Some(expires_ms) = record.expires_ms() else {
            return self.close(ReadCommand::Done(Held::Record(record), Expiry::Ahead), sink);
        };
        let groups = self.addressed.groups();
        let passed = self.known.filter_clocks(|clock| clock.millis() >= expires_ms);
        let cannot_follow = self.answered().minus(passed).and(self.target.clocks_asked).minus(self.pending);
        let clocks = ClocksAtEnd { passed, cannot_follow };
        let is_own_passed = own_clock().millis() >= expires_ms;
        let expiry = match () {
            () if !self.addressed.quorum().is_quorum() => rules::expiry_below_quorum(clocks, is_own_passed),
            () if rules::has_ended(clocks, groups.as_ref()) => Expiry::Passed,
            () if rules::has_not_ended(clocks, is_own_passed, groups.as_ref()) => Expiry::Ahead,
            () => return self.ask_clocks(passed, sink),
        };
        self.close(ReadCommand::Done(Held::Record(record), expiry), sink);
    }

    /// Some clocks have passed the end of the target's value, others have not: has those follow, once each. All
    /// replicas are asked, since a majority of them decides.
    fn ask_clocks(&mut self, passed: ReplicaSet, sink: &mut dyn FnMut(ReadCommand)) {
        let all = self.addressed.all();
        let owed = all.minus(passed).minus(self.failed).minus(self.target.clocks_asked);
        if owed.is_empty() && self.pending.is_empty() {
            return self.close(ReadCommand::Hopeless, sink);
        }
        for rank in owed.iter() {
            self.target.clocks_asked.insert(rank);
            if self.pending.contains(rank) || self.fetching.contains(rank) {
                self.target.clocks_queued.insert(rank);
            }
            self.asked.insert(rank);
            self.pending.insert(rank);
            sink(ReadCommand::Ask { rank, wanted: Wanted::VersionAtClock });
        }
    }

    /// Values of `version` and a GC watermark above it do not go together: when the GC watermark rose, every holder
    /// already had something newer, be it a deletion below the GC watermark or a value above it, which the GC
    /// watermark's own replica may lack. So the holders have answered before that and are asked once more; one that
    /// gives the same again (a reader that was under way brought it back) counts for nothing.
    fn ask_again(&mut self, version: Version, own_clock: &dyn Fn() -> Hlc, sink: &mut dyn FnMut(ReadCommand)) {
        self.record = None;
        for rank in self.holders(version).iter() {
            self.known.set(rank, None);
            if self.asked_again.insert(rank) {
                let wanted = if self.pending_record.is_empty() { Wanted::Record } else { Wanted::Version };
                self.pending.insert(rank);
                if wanted == Wanted::Record {
                    self.pending_record.insert(rank);
                }
                sink(ReadCommand::Ask { rank, wanted });
            } else {
                self.exclude(rank);
            }
        }
        self.ask_rest(self.pending_record.is_empty(), sink);
        self.evaluate(own_clock, sink);
    }

    fn answer_absent(&mut self, sink: &mut dyn FnMut(ReadCommand)) {
        let judging = self.addressed.groups().as_ref().first().copied().unwrap_or_default();
        let gc_watermark = self.gc_watermark(judging).unwrap_or(Version::ZERO);
        self.close(ReadCommand::Done(Held::Absent { gc_watermark }, Expiry::Ahead), sink);
    }

    fn close(&mut self, last: ReadCommand, sink: &mut dyn FnMut(ReadCommand)) {
        self.closed = true;
        if !matches!(last, ReadCommand::Done(Held::Record(_), _)) {
            self.record = None;
        }
        sink(last);
    }

    fn holders(&self, version: Version) -> ReplicaSet {
        self.known.filter(|current| current == Current::Record(version))
    }

    /// Asks a holder of `version` that was not asked yet for the record.
    fn fetch_from_next(&mut self, version: Version, sink: &mut dyn FnMut(ReadCommand)) {
        let next = self.holders(version).minus(self.fetching).iter().next();
        if let Some(rank) = next {
            self.fetching.insert(rank);
            sink(ReadCommand::Ask { rank, wanted: Wanted::Record });
        }
    }

    /// Asks all not asked yet, the first of them for the record if it is `wanted`.
    fn ask_rest(&mut self, mut wanted: bool, sink: &mut dyn FnMut(ReadCommand)) {
        let rest = self.addressed.all().minus(self.asked);
        for rank in rest.iter() {
            self.asked.insert(rank);
            self.pending.insert(rank);
            if wanted {
                self.pending_record.insert(rank);
            }
            sink(ReadCommand::Ask { rank, wanted: if wanted { Wanted::Record } else { Wanted::Version } });
            wanted = false;
        }
    }
}

/// Whether `set` has as many of each group as are required.
#[inline]
fn has_enough(addressed: &impl Addressed, set: ReplicaSet) -> bool {
    addressed.groups().as_ref().iter().all(|group| set.and(*group).len() >= addressed.required(*group))
}

#[inline]
fn union(sets: &impl AsRef<[ReplicaSet]>) -> ReplicaSet {
    sets.as_ref().iter().fold(ReplicaSet::EMPTY, |all, set| all.or(*set))
}
