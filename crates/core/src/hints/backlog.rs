//! The hints kept for one node, by their sizes: which bucket is written, which is delivered next, which must go.
//!
//! Invariants: buckets are in the order of their names, which only grow; one at most is *open*, the last; the
//! one that is being written is neither delivered nor dropped, so that what is read of a bucket is all of it.

use std::collections::VecDeque;
use std::time::Duration;

/// Names a bucket: the milliseconds of the wall clock when it was opened, or more where that went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketId(pub u64);

/// What lies in a bucket, or in all of them. A key that was kept again counts again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Hints.
    pub hints: u64,
    /// Bytes of their keys and records.
    pub bytes: u64,
}

impl Size {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { hints: self.hints + other.hints, bytes: self.bytes + other.bytes }
    }

    fn without(self, part: Self) -> Self {
        Self { hints: self.hints.saturating_sub(part.hints), bytes: self.bytes.saturating_sub(part.bytes) }
    }
}

/// How much is kept for one node, and how long.
#[derive(Clone, Copy, Debug)]
pub struct BacklogBounds {
    /// Bytes of all buckets.
    pub bytes_max: u64,
    /// Age of a bucket, from when it was closed.
    pub age_max: Duration,
}

/// A bucket that gets no more hints after so long.
const BUCKET_AGE: Duration = Duration::from_secs(60);
/// Nor with so many bytes.
const BUCKET_BYTES: u64 = 16 << 20;
/// Buckets that `bytes_max` is divided into, at least: over it one of them goes.
const BUCKETS_MIN: u64 = 8;

/// Why a bucket is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverBound {
    /// There were more than `bytes_max` bytes, and it was the oldest.
    Bytes,
    /// It was older than `age_max`.
    Age,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    id: BucketId,
    size: Size,
    /// Of it, what was gone through by the delivery that is under way.
    delivered: Size,
}

impl Bucket {
    fn new(id: BucketId, size: Size) -> Self {
        Self { id, size, delivered: Size::default() }
    }
}

/// The buckets of one node.
#[derive(Clone, Debug)]
pub struct Backlog {
    bounds: BacklogBounds,
    /// Oldest first.
    buckets: VecDeque<Bucket>,
    /// The last may get more.
    is_open: bool,
    /// The last is being written.
    is_written: bool,
    last: BucketId,
}

impl Backlog {
    /// No hints.
    #[must_use]
    pub fn new(bounds: BacklogBounds) -> Self {
        Self { bounds, buckets: VecDeque::new(), is_open: false, is_written: false, last: BucketId(0) }
    }

    /// Takes a bucket of an earlier run, oldest first; it gets no more hints.
    pub fn restore(&mut self, id: BucketId, size: Size) {
        assert!(self.last < id && !self.is_open, "buckets are restored in their order, before any is written");
        self.last = id;
        self.buckets.push_back(Bucket::new(id, size));
    }

    /// The bucket that gets what is kept now, until [`Backlog::end_write`].
    pub fn begin_write(&mut self, now_ms: u64) -> BucketId {
        let current = self.buckets.back().filter(|_| self.is_open);
        let bytes_max = BUCKET_BYTES.min(self.bounds.bytes_max / BUCKETS_MIN);
        let fits = |bucket: &&Bucket| {
            let age_ms = now_ms.saturating_sub(bucket.id.0);
            bucket.size.bytes < bytes_max && u128::from(age_ms) < BUCKET_AGE.as_millis()
        };
        if current.filter(fits).is_none() && !self.is_written {
            self.last = BucketId(now_ms.max(self.last.0 + 1));
            self.buckets.push_back(Bucket::new(self.last, Size::default()));
            self.is_open = true;
        }
        self.is_written = true;
        self.last
    }

    /// What the bucket that is being written will hold with `more`.
    #[must_use]
    pub fn size_with(&self, more: Size) -> Size {
        self.buckets.back().map_or(more, |bucket| bucket.size.plus(more))
    }

    /// `more` was written, or nothing was.
    ///
    /// # Panics
    /// Unless [`Backlog::begin_write`] came before.
    pub fn end_write(&mut self, more: Option<Size>) {
        assert!(self.is_written, "a write ends that has begun");
        self.is_written = false;
        let bucket = self.buckets.back_mut().expect("what is being written is not dropped");
        bucket.size = bucket.size.plus(more.unwrap_or_default());
        if bucket.size == Size::default() {
            self.buckets.pop_back();
            self.is_open = false;
        }
    }

    /// The newest bucket, closed for delivery; the one before it while that is being written.
    pub fn next_to_deliver(&mut self) -> Option<BucketId> {
        if self.is_written {
            return self.buckets.iter().rev().nth(1).map(|bucket| bucket.id);
        }
        self.is_open = false;
        self.buckets.back().map(|bucket| bucket.id)
    }

    /// `more` of a bucket was delivered: it is not pending, and takes its room until all of the bucket is removed.
    pub fn note_delivered(&mut self, id: BucketId, more: Size) {
        if let Some(bucket) = self.buckets.iter_mut().find(|bucket| bucket.id == id) {
            bucket.delivered = bucket.delivered.plus(more);
        }
    }

    /// Removes a bucket; what it held, if it was still there.
    pub fn remove(&mut self, id: BucketId) -> Option<Size> {
        let index = self.buckets.iter().position(|bucket| bucket.id == id)?;
        let is_last = index + 1 == self.buckets.len();
        assert!(!(is_last && (self.is_written || self.is_open)), "only closed buckets go");
        self.buckets.remove(index).map(|bucket| bucket.size)
    }

    /// Removes the oldest bucket if there is too much or it is too old: to be called until there is none.
    pub fn drop_excess(&mut self, now_ms: u64) -> Option<(BucketId, Size, OverBound)> {
        let oldest = *self.buckets.front()?;
        if self.buckets.len() == 1 && self.is_written {
            return None;
        }
        let age = Duration::from_millis(now_ms.saturating_sub(oldest.id.0));
        let why = if self.size().bytes > self.bounds.bytes_max {
            OverBound::Bytes
        } else if age > self.bounds.age_max + BUCKET_AGE {
            OverBound::Age
        } else {
            return None;
        };
        self.is_open &= self.buckets.len() > 1;
        self.buckets.pop_front();
        Some((oldest.id, oldest.size, why))
    }

    /// What a bucket holds: nothing if it is gone.
    #[must_use]
    pub fn size_of(&self, id: BucketId) -> Size {
        self.buckets.iter().find(|bucket| bucket.id == id).map_or(Size::default(), |bucket| bucket.size)
    }

    /// What is to be delivered.
    #[must_use]
    pub fn pending(&self) -> Size {
        let pending = |bucket: &Bucket| bucket.size.without(bucket.delivered);
        self.buckets.iter().fold(Size::default(), |sum, bucket| sum.plus(pending(bucket)))
    }

    /// When the oldest bucket was opened, in milliseconds of the wall clock.
    #[must_use]
    pub fn oldest_ms(&self) -> Option<u64> {
        self.buckets.front().map(|bucket| bucket.id.0)
    }

    /// Everything that is kept.
    #[must_use]
    pub fn size(&self) -> Size {
        self.buckets.iter().fold(Size::default(), |sum, bucket| sum.plus(bucket.size))
    }
}
