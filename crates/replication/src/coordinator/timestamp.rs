//! Timestamps for writes: the clock's bound is durable before a timestamp passes it.

use kvorum_base::clock::NoTimestamp;
use kvorum_core::quorum::Failure;
use kvorum_core::{Hlc, Version};

use super::operations::Operations;
use crate::replica::reply_to::ReplyTo;

/// Which part of the deadline a timestamp waits for the disk.
const RAISE_SHARE: u32 = 10;
/// How often the clock's bound is raised for one timestamp.
const RAISES_MAX: usize = 3;

impl Operations {
    /// Timestamps above `above`, raising the durable bound first if it must be, and past it if the disk takes no
    /// writes, or not in time. Cancel safe.
    ///
    /// # Errors
    /// [`Failure::ClockSkew`] if replicas would refuse the timestamp; else why the bound could not be raised.
    pub(super) async fn timestamp(&self, above: Hlc) -> Result<Version, Failure> {
        for _ in 0..RAISES_MAX {
            let needed = match self.clock.timestamp(above) {
                Ok(version) => return Ok(version),
                Err(NoTimestamp::TooFarAhead) => return Err(Failure::ClockSkew),
                Err(NoTimestamp::PastBound { needed }) => needed,
            };
            if self.replica.disk_refuses() {
                return self.timestamp_past_bound(above);
            }
            match self.raise_bound(needed).await {
                Ok(()) => {}
                // A queue that is full behind a disk which hangs is no reason to keep the others waiting either.
                Err(Failure::DiskFull | Failure::Disk | Failure::Overloaded) => {
                    return self.timestamp_past_bound(above);
                }
                Err(failure) => return Err(failure),
            }
        }
        self.clock.timestamp(above).map_err(|no_timestamp| match no_timestamp {
            NoTimestamp::TooFarAhead => Failure::ClockSkew,
            // Others use up the lead faster than it is raised.
            NoTimestamp::PastBound { .. } => Failure::Overloaded,
        })
    }

    /// [`Failure::Disk`] also if the disk has not answered after a part of the deadline: the others need not wait for
    /// it. Until it has, the clock shows it, and the node is not ready.
    pub(super) async fn raise_bound(&self, to: Hlc) -> Result<(), Failure> {
        let (send, mut receive) = tokio::sync::oneshot::channel();
        self.replica.raise_bound(to, ReplyTo::Durable(send)).map_err(|_| Failure::Overloaded)?;
        if let Ok(raised) = tokio::time::timeout(self.deadline / RAISE_SHARE, &mut receive).await {
            return raised.unwrap_or(Err(Failure::NotServing));
        }
        let late = self.clock.note_late_raise();
        tokio::task::spawn_local(async move {
            // Whatever it answers: it does again, and the store's health shows the rest.
            let _ = receive.await;
            drop(late);
        });
        Err(Failure::Disk)
    }

    /// Has the clock's reading of now survive a restart: see [`Clock::durable_reading`]. Cancel safe.
    ///
    /// # Errors
    /// As [`Operations::raise_bound`].
    ///
    /// [`Clock::durable_reading`]: kvorum_base::clock::Clock::durable_reading
    pub(super) async fn make_clock_durable(&self) -> Result<(), Failure> {
        if self.clock.is_present_durable() {
            return Ok(());
        }
        self.raise_bound(self.clock.reading()).await
    }

    fn timestamp_past_bound(&self, above: Hlc) -> Result<Version, Failure> {
        self.clock.timestamp_past_bound(above).map_err(|_| Failure::ClockSkew)
    }
}
