//! Operations, and their shares.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::keys::KeyOrder;
use crate::numbers::float;
use crate::random::Random;

/// One thing that a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientOperation {
    /// Reads a key.
    Get,
    /// Writes a key of those that were filled.
    Put,
    /// Writes a key behind them.
    Insert,
    /// Deletes a key.
    Delete,
    /// Reads up to 100 keys in order, as far as the node that is asked holds them.
    Range,
    /// Reads up to 100 keys in order, of all that the cluster holds.
    Scan,
    /// Reads a key and then writes it: two requests, one operation.
    Modify,
}

impl ClientOperation {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Get, Self::Put, Self::Insert, Self::Delete, Self::Range, Self::Scan, Self::Modify];

    /// As scripts name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Insert => "insert",
            Self::Delete => "delete",
            Self::Range => "range",
            Self::Scan => "scan",
            Self::Modify => "modify",
        }
    }
}

/// Operations by their shares, and the order of keys that belongs to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    name: String,
    /// At least one, each with a share over 0.
    shares: Vec<(ClientOperation, u64)>,
    order: Option<KeyOrder>,
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        use ClientOperation::{Delete, Get, Insert, Modify, Put, Range, Scan};
        let preset = |shares: &[(ClientOperation, u64)], order| Self {
            name: name.to_owned(),
            shares: shares.to_vec(),
            order: Some(order),
        };
        let single = |operation| Ok(Self { name: name.to_owned(), shares: vec![(operation, 1)], order: None });
        match name {
            "put" => single(Put),
            "get" => single(Get),
            "delete" => single(Delete),
            "range" => single(Range),
            "scan" => single(Scan),
            "ycsb-a" => Ok(preset(&[(Get, 50), (Put, 50)], KeyOrder::Zipfian)),
            "ycsb-b" => Ok(preset(&[(Get, 95), (Put, 5)], KeyOrder::Zipfian)),
            "ycsb-c" => Ok(preset(&[(Get, 100)], KeyOrder::Zipfian)),
            "ycsb-d" => Ok(preset(&[(Get, 95), (Insert, 5)], KeyOrder::Latest)),
            "ycsb-e" => Ok(preset(&[(Scan, 95), (Insert, 5)], KeyOrder::Zipfian)),
            "ycsb-f" => Ok(preset(&[(Get, 50), (Modify, 50)], KeyOrder::Zipfian)),
            _ => Self::mixed(name),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Workload {
    fn mixed(name: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{name}` is not put, get, delete, range, scan, mixed:put=50,get=50 or ycsb-a to ycsb-f");
        let mut shares: Vec<(ClientOperation, u64)> = Vec::new();
        for part in name.strip_prefix("mixed:").ok_or_else(wrong)?.split(',') {
            let (operation, share) = part.split_once('=').ok_or_else(wrong)?;
            let operation = *ClientOperation::ALL.iter().find(|one| one.name() == operation).ok_or_else(wrong)?;
            let share = share.parse::<u32>().map_err(|_| wrong())?;
            if share == 0 || shares.iter().any(|(seen, _)| *seen == operation) {
                return Err(format!("`{name}`: each operation once, with a share over 0"));
            }
            shares.push((operation, share.into()));
        }
        Ok(Self { name: name.to_owned(), shares, order: None })
    }

    /// The order of keys that the workload is defined with.
    #[must_use]
    pub fn order(&self) -> Option<KeyOrder> {
        self.order
    }

    /// Whether it reads what must have been written before.
    #[must_use]
    pub fn reads(&self) -> bool {
        use ClientOperation::{Get, Modify, Range, Scan};
        [Get, Range, Scan, Modify].into_iter().any(|operation| self.has(operation))
    }

    /// What part of all operations this one is.
    pub(crate) fn share(&self, operation: ClientOperation) -> f64 {
        let own = self.shares.iter().find(|(one, _)| *one == operation).map_or(0, |(_, share)| *share);
        float(own) / float(self.shares.iter().map(|(_, share)| share).sum())
    }

    pub(crate) fn has(&self, operation: ClientOperation) -> bool {
        self.shares.iter().any(|(one, _)| *one == operation)
    }

    /// Whether an operation with this answer has succeeded: where keys are deleted, one that is not there is no failure.
    pub(crate) fn accepts(&self, status: u16) -> bool {
        status < 400 || status == 404 && self.has(ClientOperation::Delete)
    }

    pub(crate) fn draw(&self, random: &mut Random) -> ClientOperation {
        let mut rest = match self.shares.as_slice() {
            [(only, _)] => return *only,
            shares => random.below(shares.iter().map(|(_, share)| share).sum()),
        };
        for (operation, share) in &self.shares {
            match rest.checked_sub(*share) {
                Some(less) => rest = less,
                None => return *operation,
            }
        }
        unreachable!("a number below the sum of the shares is in one of them")
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientOperation, KeyOrder, Workload};
    use crate::random::Random;

    fn drawn(name: &str, operation: ClientOperation) -> usize {
        let workload: Workload = name.parse().unwrap();
        let mut random = Random::new(1);
        (0..10_000).filter(|_| workload.draw(&mut random) == operation).count()
    }

    #[test]
    fn operations_are_drawn_by_their_shares() {
        for (name, operation, share) in [
            ("put", ClientOperation::Put, 10_000),
            ("mixed:put=1,get=3", ClientOperation::Get, 7_500),
            ("ycsb-a", ClientOperation::Put, 5_000),
            ("ycsb-b", ClientOperation::Put, 500),
            ("ycsb-c", ClientOperation::Get, 10_000),
            ("ycsb-d", ClientOperation::Insert, 500),
            ("ycsb-e", ClientOperation::Scan, 9_500),
            ("ycsb-f", ClientOperation::Modify, 5_000),
        ] {
            assert!(drawn(name, operation).abs_diff(share) <= 200, "{name}: {}", drawn(name, operation));
        }
    }

    #[test]
    fn a_share_is_a_part_of_all_operations() {
        let share = |name: &str| name.parse::<Workload>().unwrap().share(ClientOperation::Get);
        assert_eq!(["put", "get", "mixed:put=1,get=3"].map(share), [0.0, 1.0, 0.75]);
    }

    #[test]
    fn a_preset_brings_its_order_of_keys() {
        assert_eq!("ycsb-a".parse::<Workload>().unwrap().order(), Some(KeyOrder::Zipfian));
        assert_eq!("ycsb-d".parse::<Workload>().unwrap().order(), Some(KeyOrder::Latest));
        assert_eq!("put".parse::<Workload>().unwrap().order(), None);
    }

    #[test]
    fn what_is_no_workload_is_refused() {
        for bad in ["", "scans", "mixed:", "mixed:put", "mixed:put=0", "mixed:put=1,put=2", "mixed:put=-1", "ycsb-g"] {
            assert!(bad.parse::<Workload>().is_err(), "{bad}");
        }
    }
}
