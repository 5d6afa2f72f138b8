//! The node's share of memory for large values, wherever they are on their way.
//!
//! Without it, slow clients, silent peers and waiting requests times the largest value would be the node's
//! memory. One count for all shards: a body is charged as it arrives, a record when it is read from the store or has
//! come from a peer. A record's charge is owned by its bytes, so it lasts for as long as a part of them is held: a
//! request that waits for other replicas, the queue to a silent peer, the answer to a client that does not read. What
//! finds no room is refused at once, and never waits.
//!
//! Values that fit the buffers which every connection has anyway are not counted, and neither are the
//! records that peers send to be stored: the commit queue bounds those.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_core::quorum::Failure;
use kvorum_core::record::RecordError;
use kvorum_core::{Key, Record};

use crate::sync::atomic::{AtomicUsize, Ordering};

/// Values up to this are not worth counting.
pub const FREE_BYTES: usize = 4 * 1024;

/// How many bytes are held, and how many may be.
#[derive(Debug)]
pub struct LargeValues {
    used: AtomicUsize,
    bytes_max: usize,
}

impl LargeValues {
    /// Nothing is held yet.
    #[must_use]
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), bytes_max })
    }

    /// Bytes held now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Charges `bytes`, if there is room: nothing where they are few.
    ///
    /// # Errors
    /// There is no room.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Result<Option<Charge>, NoRoom> {
        if bytes <= FREE_BYTES {
            return Ok(None);
        }
        let mut charge = Charge { values: Arc::clone(self), bytes: 0 };
        charge.grow_to(bytes)?;
        Ok(Some(charge))
    }

    /// The same record, its bytes charged for as long as they live.
    ///
    /// # Errors
    /// There is no room.
    #[inline]
    pub fn keep(self: &Arc<Self>, record: Record) -> Result<Record, NoRoom> {
        let charge = self.charge(record.bytes().len())?;
        Ok(kept(record, charge))
    }

    /// The record in bytes from a disk or a peer, if its digest is right, and if there is room for it.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn verified(self: &Arc<Self>, key: &Key, bytes: Bytes) -> Result<Record, Unusable> {
        let record = Record::decode(key, bytes).map_err(Unusable::Damaged)?;
        self.keep(record).map_err(|_| Unusable::NoRoom)
    }
}

/// Why a record that was read cannot be used.
#[derive(Debug)]
pub enum Unusable {
    /// Its bytes are not what was stored under its key.
    Damaged(RecordError),
    /// It is large, and there is no room for it.
    NoRoom,
}

impl From<Unusable> for Failure {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Damaged(_) => Self::Corrupt,
            Unusable::NoRoom => Self::Overloaded,
        }
    }
}

fn kept(record: Record, charge: Option<impl Send + 'static>) -> Record {
    let Some(charge) = charge else { return record };
    record.kept_by(|bytes| Bytes::from_owner(ChargedBytes { bytes, _charge: charge }))
}

/// There is no room for another large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Bytes charged, until it is dropped.
#[derive(Debug)]
pub struct Charge {
    values: Arc<LargeValues>,
    bytes: usize,
}

impl Charge {
    /// Charges what is missing to `bytes`.
    ///
    /// # Errors
    /// There is no room; what is charged stays.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let more = bytes.saturating_sub(self.bytes);
        let fits = |used: usize| used.checked_add(more).filter(|used| *used <= self.values.bytes_max);
        self.values.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| NoRoom)?;
        self.bytes += more;
        Ok(())
    }

    /// The same bytes, charged until the last part of them is gone.
    #[must_use]
    pub fn kept_by(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(ChargedBytes { bytes, _charge: self })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.values.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes and what they are charged with.
struct ChargedBytes<C> {
    bytes: Bytes,
    _charge: C,
}

impl<C> AsRef<[u8]> for ChargedBytes<C> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A value that a client sends, and what it is charged with.
#[derive(Debug, Default)]
pub struct Body {
    bytes: Bytes,
    charge: BodyCharge,
}

/// What pays for a body.
#[derive(Debug, Default)]
enum BodyCharge {
    /// Nothing: it is small.
    #[default]
    None,
    Own(Charge),
    /// The charge of a batch, for all of its values.
    Shared(Arc<Charge>),
}

impl Body {
    /// Bytes that `charge` is for.
    #[must_use]
    pub fn new(bytes: Bytes, charge: Option<Charge>) -> Self {
        Self { bytes, charge: charge.map_or(BodyCharge::None, BodyCharge::Own) }
    }

    /// Bytes of a batch, all of which `charge` is for. A small value does not hold on to it.
    #[must_use]
    pub fn part_of(bytes: Bytes, charge: Option<Arc<Charge>>) -> Self {
        let charge = charge.filter(|_| bytes.len() > FREE_BYTES);
        Self { bytes, charge: charge.map_or(BodyCharge::None, BodyCharge::Shared) }
    }

    /// The bytes, and what they are charged with where that is their own.
    #[must_use]
    pub fn into_parts(self) -> (Bytes, Option<Charge>) {
        match self.charge {
            BodyCharge::Own(charge) => (self.bytes, Some(charge)),
            BodyCharge::None | BodyCharge::Shared(_) => (self.bytes, None),
        }
    }

    /// The value's bytes.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The record that `build` makes of the bytes, which are given up, and charged with what they were: so a
    /// value is in memory twice for no longer than it takes to copy it.
    pub fn into_record(self, build: impl FnOnce(&[u8]) -> Record) -> Record {
        let Self { bytes, charge } = self;
        let record = build(&bytes);
        drop(bytes);
        match charge {
            BodyCharge::None => record,
            BodyCharge::Own(charge) => kept(record, Some(charge)),
            BodyCharge::Shared(charge) => kept(record, Some(charge)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::value_memory::*;
    use kvorum_core::{Hlc, Incarnation, Key, Version};

    fn record(bytes: usize) -> Record {
        let version = Version { hlc: Hlc::from_raw(1), incarnation: Incarnation(1) };
        Record::value(&key(), version, 1, None, &vec![7; bytes])
    }

    fn key() -> Key {
        Key::new(Bytes::from_static(b"k")).unwrap()
    }

    #[test]
    fn a_record_is_charged_until_the_last_part_of_its_bytes_is_gone() {
        let values = LargeValues::new(300_000);
        let record = values.keep(record(200_000)).unwrap();
        assert!(values.used() >= 200_000);
        assert_eq!(Record::decode(&key(), record.bytes().clone()).unwrap(), record);
        let payload = record.payload();
        drop(record);
        assert_eq!((payload.len(), values.used() >= 200_000), (200_000, true));
        drop(payload);
        assert_eq!(values.used(), 0);
    }

    #[test]
    fn what_has_no_room_is_refused_and_leaves_nothing() {
        let values = LargeValues::new(300_000);
        let first = values.keep(record(200_000)).unwrap();
        assert_eq!(values.keep(record(200_000)).unwrap_err(), NoRoom);
        let mut charge = values.charge(50_000).unwrap().unwrap();
        assert_eq!(charge.grow_to(150_000).unwrap_err(), NoRoom);
        charge.grow_to(60_000).unwrap();
        assert_eq!(values.used(), first.bytes().len() + 60_000);
        drop((first, charge));
        assert_eq!(values.used(), 0);
    }

    #[test]
    fn small_values_are_free() {
        let values = LargeValues::new(0);
        values.keep(record(1000)).unwrap();
        assert!(values.charge(FREE_BYTES).unwrap().is_none());
        assert!(values.charge(FREE_BYTES + 1).is_err());
    }

    #[test]
    fn the_charge_of_a_body_goes_over_to_its_record() {
        let values = LargeValues::new(300_000);
        let bytes = Bytes::from(vec![7; 200_000]);
        let body = Body::new(bytes.clone(), values.charge(bytes.len()).unwrap());
        let record = body.into_record(|value| record(value.len()));
        assert!(bytes.is_unique(), "the body is given up");
        assert_eq!(values.used(), 200_000);
        drop(record);
        assert_eq!(values.used(), 0);
    }
}
