//! A plain specification of a read: the facts so far, replica by replica, and what they call for. Written
//! over lists, without the machine's sets, and derived from nothing but docs/explanation/consistency.md.

/// What a replica has reported to hold. Versions are plain numbers here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    Record(u64),
    GcWatermark(u64),
}

impl Told {
    /// A GC watermark supersedes the record of its version.
    fn age(self) -> (u64, bool) {
        match self {
            Told::Record(version) => (version, false),
            Told::GcWatermark(version) => (version, true),
        }
    }

    pub fn version(self) -> u64 {
        self.age().0
    }

    pub fn is_record(self) -> bool {
        matches!(self, Told::Record(_))
    }
}

/// The ask that every replica gets at most once, before anything is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum First {
    Unasked,
    Asked { record: bool },
    Settled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    Sent,
    Accepted,
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    pub first: First,
    /// A record that it is known to hold has been asked of it.
    pub fetch: bool,
    pub told: Option<Told>,
    /// It counts for nothing, because it has failed, or for another reason.
    pub failed: bool,
    pub said_failed: bool,
    /// It was asked once more because of a GC watermark.
    pub again: bool,
    /// The write-backs sent to it, by version.
    pub stores: Vec<(u64, Stored)>,
}

impl Replica {
    fn exclude(&mut self) {
        (self.first, self.fetch, self.told, self.failed) = (First::Settled, false, None, true);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    Record(u64),
    Version(u64),
    Absent(u64),
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreHeard {
    Accepted,
    Newer(Told),
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Said {
    Ask { rank: usize, record: bool },
    Store { rank: usize, version: u64 },
    Answer(u64),
    Absent(u64),
    Hopeless,
}

impl Said {
    fn rank(self) -> Option<usize> {
        match self {
            Said::Ask { rank, .. } | Said::Store { rank, .. } => Some(rank),
            Said::Answer(_) | Said::Absent(_) | Said::Hopeless => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    pub ack: usize,
    /// The replicas of each group, in their order: of one, or of where the key belongs and of where it will belong.
    pub groups: Vec<Vec<usize>>,
    /// How many replicas the record of each version asked for: version and `from`.
    pub froms: Vec<(u64, usize)>,
    /// The versions whose records are deletions.
    pub tombstones: Vec<u64>,
    pub replicas: Vec<Replica>,
    /// The newest record received.
    pub in_hand: Option<u64>,
    /// What is being written back: begins anew whenever the newest changes.
    pub target: Option<u64>,
    pub hedged: bool,
    pub over: bool,
}

impl Facts {
    pub fn new(ack: usize, groups: &[Vec<usize>], froms: &[(u64, usize)], tombstones: &[u64]) -> Self {
        let from = groups.iter().flatten().max().unwrap() + 1;
        let (first, stores) = (First::Unasked, Vec::new());
        let replica =
            Replica { first, fetch: false, told: None, failed: false, said_failed: false, again: false, stores };
        let (froms, tombstones) = (froms.to_vec(), tombstones.to_vec());
        let replicas = vec![replica; from];
        let groups = groups.to_vec();
        Self { ack, groups, froms, tombstones, replicas, in_hand: None, target: None, hedged: false, over: false }
    }

    pub fn is_quorum(&self) -> bool {
        self.ack * 2 > self.groups[0].len()
    }

    /// Whether `ack` of each group are so, or all of one that is smaller. At a quorum, more than half of each; where
    /// `ack` is no more than that, that is enough.
    fn enough(&self, is_so: impl Fn(&Replica) -> bool) -> bool {
        let is_majority = self.is_quorum() && (self.ack - 1) * 2 <= self.groups[0].len();
        self.groups.iter().all(|group| {
            let count = group.iter().filter(|rank| is_so(&self.replicas[**rank])).count();
            let is_asked = is_majority || count >= self.ack.min(group.len());
            is_asked && (!self.is_quorum() || count * 2 > group.len())
        })
    }

    /// Whether enough replicas answered with something that counts.
    pub fn has_voters(&self) -> bool {
        self.enough(|replica| replica.told.is_some())
    }

    pub fn newest(&self) -> Option<u64> {
        let told = self.replicas.iter().filter_map(|replica| replica.told).filter(|told| told.is_record());
        told.map(Told::version).chain(self.in_hand).max()
    }

    /// The replicas of this read that the record of `version` shall be on, of each group.
    pub fn scopes(&self, version: u64) -> Vec<&[usize]> {
        let (_, from) = self.froms.iter().find(|(other, _)| *other == version).expect("every version has a from");
        self.groups.iter().map(|group| &group[..group.len().min(*from)]).collect()
    }

    pub fn shall_hold(&self, rank: usize, version: u64) -> bool {
        self.scopes(version).iter().any(|scope| scope.contains(&rank))
    }

    pub fn holds(&self, rank: usize, version: u64) -> bool {
        let replica = &self.replicas[rank];
        !replica.failed
            && (replica.told == Some(Told::Record(version)) || replica.stores.contains(&(version, Stored::Accepted)))
    }

    /// The replicas that have reported it.
    fn tellers(&self, version: u64) -> Vec<usize> {
        (0..self.replicas.len()).filter(|rank| self.replicas[*rank].told == Some(Told::Record(version))).collect()
    }

    pub fn majority_holds(&self, version: u64) -> bool {
        let is_held =
            |scope: &&[usize]| scope.iter().filter(|rank| self.holds(**rank, version)).count() * 2 > scope.len();
        self.scopes(version).iter().all(is_held)
    }

    /// What has to be done now, given what has been done; notes it as done.
    pub fn due(&mut self) -> Vec<Said> {
        let mut all = Vec::new();
        loop {
            let overtaken = self.overtaken();
            let due = match overtaken {
                Some(version) => self.ask_again(version),
                None => self.next(),
            };
            due.iter().for_each(|said| self.say(*said));
            all.extend(due);
            if overtaken.is_none() {
                return all;
            }
        }
    }

    /// The value, if the newest is one in hand, that a GC watermark of one that should hold it has overtaken.
    fn overtaken(&self) -> Option<u64> {
        let newest = self.newest().filter(|_| !self.over && self.has_voters())?;
        let value = self.in_hand == Some(newest) && !self.tombstones.contains(&newest);
        (self.is_quorum() && value && self.gc_watermark_above(newest)).then_some(newest)
    }

    fn gc_watermark_above(&self, version: u64) -> bool {
        // Of where the key belongs now: another may lack what those have.
        let told = self.scopes(version)[0].iter().filter_map(|rank| self.replicas[*rank].told);
        told.filter(|told| !told.is_record()).any(|gc_watermark| gc_watermark.version() >= version)
    }

    /// Its holders count as not having answered yet; one that answers so twice has failed. All others are asked.
    fn ask_again(&mut self, version: u64) -> Vec<Said> {
        self.in_hand = None;
        let mut asked = Vec::new();
        for rank in 0..self.replicas.len() {
            if self.replicas[rank].told != Some(Told::Record(version)) {
                continue;
            }
            if self.replicas[rank].again {
                self.replicas[rank].exclude();
            } else {
                let record = !self.record_is_coming() && asked.is_empty();
                asked.push(Said::Ask { rank, record });
                let replica = &mut self.replicas[rank];
                (replica.again, replica.told) = (true, None);
                replica.first = First::Unasked;
            }
        }
        let record = !self.record_is_coming() && asked.is_empty();
        let others: Vec<Said> = self.ask_unasked(record);
        let new = others.into_iter().filter(|said| asked.iter().all(|other| other.rank() != said.rank()));
        asked.iter().copied().chain(new).collect()
    }

    fn record_is_coming(&self) -> bool {
        self.replicas.iter().any(|replica| replica.first == First::Asked { record: true })
    }

    fn next(&mut self) -> Vec<Said> {
        if self.over {
            return vec![];
        }
        if !self.enough(|replica| !replica.failed) {
            return vec![Said::Hopeless];
        }
        if !self.has_voters() {
            let ask = self.replicas.iter().any(|replica| replica.failed);
            return if ask { self.ask_unasked(!self.record_is_coming() && !self.newest_in_hand()) } else { vec![] };
        }
        let Some(newest) = self.newest() else { return vec![self.absent()] };
        if self.in_hand != Some(newest) {
            let holders = self.tellers(newest);
            let coming = holders.iter().any(|rank| self.replicas[*rank].fetch);
            return if coming { vec![] } else { vec![Said::Ask { rank: holders[0], record: true }] };
        }
        if self.gc_watermark_above(newest) {
            return vec![self.absent()];
        }
        if self.target != Some(newest) {
            self.target = Some(newest);
            self.replicas.iter_mut().for_each(|replica| replica.stores.retain(|(version, _)| *version != newest));
        }
        if !self.is_quorum() || self.majority_holds(newest) {
            return vec![Said::Answer(newest)];
        }
        self.write_back(newest)
    }

    fn write_back(&self, newest: u64) -> Vec<Said> {
        let progress = |rank: usize| self.replicas[rank].stores.iter().find(|(version, _)| *version == newest);
        let may_hold = |rank: &&usize| {
            let replica = &self.replicas[**rank];
            let undecided = progress(**rank).is_none_or(|(_, stored)| *stored == Stored::Sent);
            !replica.failed && (self.holds(**rank, newest) || undecided)
        };
        if self.scopes(newest).iter().any(|scope| scope.iter().filter(may_hold).count() * 2 <= scope.len()) {
            return vec![Said::Hopeless];
        }
        // To those that have answered that they lack it; the others are asked first.
        let owed = (0..self.replicas.len()).filter(|rank| {
            let replica = &self.replicas[*rank];
            let shall = replica.told.is_some_and(|told| self.shall_hold(*rank, newest) || told.is_record());
            shall && !replica.failed && !self.holds(*rank, newest) && progress(*rank).is_none()
        });
        let stores = owed.map(|rank| Said::Store { rank, version: newest });
        self.ask_unasked(false).into_iter().chain(stores).collect()
    }

    /// What a hedge calls for; notes it as done.
    pub fn due_on_hedge(&mut self) -> Vec<Said> {
        if self.over {
            return vec![];
        }
        let mut due = self.ask_unasked(!self.newest_in_hand());
        if let Some(newest) = self.newest()
            && self.has_voters()
            && self.in_hand != Some(newest)
        {
            let another = self.tellers(newest).into_iter().find(|rank| !self.replicas[*rank].fetch);
            due.extend(another.map(|rank| Said::Ask { rank, record: true }));
        }
        due.iter().for_each(|said| self.say(*said));
        due
    }

    fn newest_in_hand(&self) -> bool {
        self.in_hand.is_some() && self.in_hand == self.newest()
    }

    fn ask_unasked(&self, record_wanted: bool) -> Vec<Said> {
        let unasked = (0..self.replicas.len()).filter(|rank| self.replicas[*rank].first == First::Unasked);
        unasked.enumerate().map(|(at, rank)| Said::Ask { rank, record: record_wanted && at == 0 }).collect()
    }

    fn absent(&self) -> Said {
        let told = self.groups[0].iter().filter_map(|rank| self.replicas[*rank].told).filter(|told| !told.is_record());
        Said::Absent(told.map(Told::version).max().unwrap_or(0))
    }

    /// Notes what was said.
    pub fn say(&mut self, said: Said) {
        match said {
            Said::Ask { rank, record } => {
                let replica = &mut self.replicas[rank];
                match replica.first {
                    First::Unasked => replica.first = First::Asked { record },
                    First::Asked { .. } | First::Settled => replica.fetch = true,
                }
            }
            Said::Store { rank, version } => self.replicas[rank].stores.push((version, Stored::Sent)),
            Said::Answer(_) | Said::Absent(_) | Said::Hopeless => self.over = true,
        }
    }

    /// Notes a replica's answer to an ask.
    pub fn hear(&mut self, rank: usize, heard: Heard) {
        let replica = &mut self.replicas[rank];
        let (told, whole) = match heard {
            Heard::Failed => {
                replica.said_failed = true;
                replica.exclude();
                return;
            }
            Heard::Version(version) => (Told::Record(version), false),
            Heard::Record(version) => (Told::Record(version), true),
            Heard::Absent(gc_watermark) => (Told::GcWatermark(gc_watermark), true),
        };
        replica.first = First::Settled;
        let overtaken = replica.told.is_some_and(|known| known.age() > told.age());
        if !overtaken {
            replica.told = Some(told);
            replica.fetch &= !whole;
        }
        if let Heard::Record(version) = heard {
            self.in_hand = self.in_hand.max(Some(version));
        }
    }

    /// Notes a replica's answer to the write-back of `version`.
    pub fn hear_store(&mut self, rank: usize, version: u64, heard: StoreHeard) {
        let replica = &mut self.replicas[rank];
        let at = replica.stores.iter().position(|store| *store == (version, Stored::Sent)).expect("it was sent");
        replica.stores[at].1 = if heard == StoreHeard::Accepted { Stored::Accepted } else { Stored::Refused };
        let StoreHeard::Newer(told) = heard else { return };
        if replica.failed {
            return;
        }
        // It has reported what it holds without being asked.
        let unasked = replica.first == First::Unasked;
        replica.first = if unasked { First::Settled } else { replica.first };
        if replica.told.is_none_or(|known| known.age() <= told.age()) {
            replica.told = Some(told);
        }
    }
}
