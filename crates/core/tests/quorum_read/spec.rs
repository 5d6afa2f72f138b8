//! A plain specification of a read: the facts so far, replica by replica, and what they call for. Written
//! over lists, without the machine's sets, and derived from nothing but the design.

/// What a replica has said it holds. Versions are plain numbers here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    Record(u64),
    Floor(u64),
}

impl Told {
    /// A floor supersedes the record of its version.
    fn age(self) -> (u64, bool) {
        match self {
            Told::Record(version) => (version, false),
            Told::Floor(version) => (version, true),
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
    pub failed: bool,
    /// The write-backs sent to it, by version.
    pub stores: Vec<(u64, Stored)>,
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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    pub ack: usize,
    /// How many replicas the record of each version asked for: version and `from`.
    pub froms: Vec<(u64, usize)>,
    pub replicas: Vec<Replica>,
    /// The newest record received.
    pub in_hand: Option<u64>,
    pub hedged: bool,
    pub over: bool,
}

impl Facts {
    pub fn new(ack: usize, from: usize, froms: &[(u64, usize)]) -> Self {
        let replica = Replica { first: First::Unasked, fetch: false, told: None, failed: false, stores: Vec::new() };
        let replicas = vec![replica; from];
        Self { ack, froms: froms.to_vec(), replicas, in_hand: None, hedged: false, over: false }
    }

    pub fn is_quorum(&self) -> bool {
        self.ack * 2 > self.replicas.len()
    }

    /// The replicas that answered with something that counts.
    pub fn voters(&self) -> usize {
        self.replicas.iter().filter(|replica| replica.told.is_some()).count()
    }

    pub fn failed(&self) -> usize {
        self.replicas.iter().filter(|replica| replica.failed).count()
    }

    pub fn newest(&self) -> Option<u64> {
        let told = self.replicas.iter().filter_map(|replica| replica.told).filter(|told| told.is_record());
        told.map(Told::version).chain(self.in_hand).max()
    }

    /// How many of this read's replicas the record of `version` shall be on.
    pub fn scope(&self, version: u64) -> usize {
        let (_, from) = self.froms.iter().find(|(other, _)| *other == version).expect("every version has a from");
        self.replicas.len().min(*from)
    }

    pub fn holds(&self, rank: usize, version: u64) -> bool {
        let replica = &self.replicas[rank];
        !replica.failed
            && (replica.told == Some(Told::Record(version)) || replica.stores.contains(&(version, Stored::Accepted)))
    }

    pub fn majority_holds(&self, version: u64) -> bool {
        let scope = self.scope(version);
        (0..scope).filter(|rank| self.holds(*rank, version)).count() * 2 > scope
    }

    /// What has to be done now, given what has been done.
    pub fn due(&self) -> Vec<Said> {
        if self.over {
            return vec![];
        }
        if self.replicas.len() - self.failed() < self.ack {
            return vec![Said::Hopeless];
        }
        if self.voters() < self.ack {
            let coming = self.replicas.iter().any(|replica| replica.first == First::Asked { record: true });
            let ask = self.failed() > 0;
            return if ask { self.ask_unasked(!coming && !self.newest_in_hand()) } else { vec![] };
        }
        let Some(newest) = self.newest() else { return vec![self.absent()] };
        if self.in_hand != Some(newest) {
            let holders: Vec<usize> = (0..self.replicas.len()).filter(|rank| self.holds(*rank, newest)).collect();
            let coming = holders.iter().any(|rank| self.replicas[*rank].fetch);
            return if coming { vec![] } else { vec![Said::Ask { rank: holders[0], record: true }] };
        }
        let scope = self.scope(newest);
        let floors = self.replicas[..scope].iter().filter_map(|replica| replica.told).filter(|told| !told.is_record());
        if floors.map(Told::version).any(|floor| floor >= newest) {
            return vec![self.absent()];
        }
        if !self.is_quorum() || self.majority_holds(newest) {
            return vec![Said::Answer(newest)];
        }
        self.write_back(newest, scope)
    }

    fn write_back(&self, newest: u64, scope: usize) -> Vec<Said> {
        let progress = |rank: usize| self.replicas[rank].stores.iter().find(|(version, _)| *version == newest);
        let may_hold = (0..scope).filter(|rank| {
            let replica = &self.replicas[*rank];
            let undecided = progress(*rank).is_none_or(|(_, stored)| *stored == Stored::Sent);
            !replica.failed && (self.holds(*rank, newest) || undecided)
        });
        if may_hold.count() * 2 <= scope {
            return vec![Said::Hopeless];
        }
        let owed = (0..self.replicas.len()).filter(|rank| {
            let replica = &self.replicas[*rank];
            let shall = *rank < scope || replica.told.is_some_and(Told::is_record);
            shall && !replica.failed && !self.holds(*rank, newest) && progress(*rank).is_none()
        });
        owed.map(|rank| Said::Store { rank, version: newest }).collect()
    }

    /// What a hedge calls for.
    pub fn due_on_hedge(&self) -> Vec<Said> {
        if self.over {
            return vec![];
        }
        let mut due = self.ask_unasked(!self.newest_in_hand());
        if let Some(newest) = self.newest()
            && self.voters() >= self.ack
            && self.in_hand != Some(newest)
        {
            let another = (0..self.replicas.len()).find(|r| self.holds(*r, newest) && !self.replicas[*r].fetch);
            due.extend(another.map(|rank| Said::Ask { rank, record: true }));
        }
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
        let told = self.replicas.iter().filter_map(|replica| replica.told).filter(|told| !told.is_record());
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
                *replica = Replica { first: First::Settled, fetch: false, told: None, failed: true, ..replica.clone() };
                return;
            }
            Heard::Version(version) => (Told::Record(version), false),
            Heard::Record(version) => (Told::Record(version), true),
            Heard::Absent(floor) => (Told::Floor(floor), true),
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
        // It has told what it holds without being asked.
        let unasked = replica.first == First::Unasked;
        replica.first = if unasked { First::Settled } else { replica.first };
        if replica.told.is_none_or(|known| known.age() <= told.age()) {
            replica.told = Some(told);
        }
    }
}
