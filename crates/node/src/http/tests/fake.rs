//! One map, and answers that a test can set.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvorum_core::quorum::Acks;
use kvorum_core::version::Hlc;
use kvorum_core::{Incarnation, Key, Record, Version};

use super::{Found, Looked, Receipt, Refused, ReplicaReceipt, Written};

/// A coordinator of one map.
#[derive(Default)]
pub struct Coordinator {
    /// What is stored.
    pub records: RefCell<BTreeMap<Vec<u8>, Record>>,
    /// The answer to everything, if set.
    pub refusal: RefCell<Option<Refused>>,
    /// Requests wait while this is set.
    pub held: Cell<bool>,
    /// Wakes the waiting ones.
    pub release: tokio::sync::Notify,
    /// Requests that came this far.
    pub requests: Cell<u32>,
    clock: Cell<u64>,
}

impl Coordinator {
    async fn enter(&self, key: &Key) -> Result<(), Refused> {
        self.requests.set(self.requests.get() + 1);
        assert!(key.as_bytes() != b"panic", "a defect");
        while self.held.get() {
            self.release.notified().await;
        }
        self.refusal.borrow().clone().map_or(Ok(()), Err)
    }

    fn stamp(&self) -> Version {
        self.clock.set(self.clock.get() + 1);
        Version { hlc: Hlc::from_millis(1_700_000_000_000 + self.clock.get()), incarnation: Incarnation(7) }
    }

    fn receipt(version: Version, trace: bool) -> Option<Receipt> {
        trace.then(|| Receipt {
            replicas: vec![
                ReplicaReceipt {
                    node: Rc::from("http://a:1"),
                    outcome: "accepted",
                    version: Some(version),
                    micros: Some(1234),
                },
                ReplicaReceipt { node: Rc::from("http://b:2"), outcome: "timeout", version: None, micros: None },
            ],
        })
    }

    pub async fn put(
        &self,
        key: Key,
        acks: Acks,
        content_type: Option<&[u8]>,
        value: &[u8],
        trace: bool,
    ) -> Result<Written, Refused> {
        self.enter(&key).await?;
        let version = self.stamp();
        let record = Record::value(&key, version, acks.from(), content_type, value);
        self.records.borrow_mut().insert(key.as_bytes().to_vec(), record);
        Ok(Written { version, receipt: Self::receipt(version, trace) })
    }

    pub async fn delete(&self, key: Key, acks: Acks, trace: bool) -> Result<Written, Refused> {
        self.enter(&key).await?;
        let version = self.stamp();
        self.records.borrow_mut().insert(key.as_bytes().to_vec(), Record::tombstone(&key, version, acks.from()));
        Ok(Written { version, receipt: Self::receipt(version, trace) })
    }

    pub async fn get(&self, key: Key, _: Acks, trace: bool) -> Result<Found, Refused> {
        self.enter(&key).await?;
        let value = match self.records.borrow().get(key.as_bytes()) {
            Some(record) => Looked::Record(record.clone()),
            None => Looked::Absent { floor: Version::ZERO },
        };
        let version = match &value {
            Looked::Record(record) => record.version(),
            Looked::Absent { floor } => *floor,
        };
        Ok(Found { value, receipt: Self::receipt(version, trace) })
    }
}
