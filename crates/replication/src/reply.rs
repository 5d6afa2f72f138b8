//! Answers to questions of background work.

use kvorum_core::Record;
use kvorum_core::quorum::{Failure, ReadAnswer, StoreAnswer};
use kvorum_core::repair::wire::RoundResponse;

/// An answer.
pub enum Reply {
    /// To a store.
    Stored(StoreAnswer),
    /// To a read; a peer's is not checked yet.
    Read(ReadAnswer<Record>),
    /// To a question of anti-entropy.
    Repair(RoundResponse),
    /// There is none.
    Failed(Failure),
}

impl Reply {
    /// As that to a store.
    pub(crate) fn of_store(self) -> StoreAnswer {
        match self {
            Self::Stored(answer) => answer,
            Self::Failed(failure) => StoreAnswer::Failed(failure),
            Self::Read(_) | Self::Repair(_) => StoreAnswer::Failed(Failure::Corrupt),
        }
    }
}
