//! Answers to questions of background work.

use kvorum_core::chain::ChainAnswer;
use kvorum_core::layout::Layout;
use kvorum_core::quorum::{Failure, ReadAnswer, StoreAnswer};
use kvorum_core::repair::wire::RoundResponse;
use kvorum_core::scan::page::ScanPage;
use kvorum_core::{Hlc, Record};

/// An answer.
pub enum Reply {
    /// To a store.
    Stored(StoreAnswer),
    /// To a read; a peer's is not checked yet.
    Read(ReadAnswer<Record>),
    /// To a question of anti-entropy.
    Repair(RoundResponse),
    /// To a question of a scan, with the node's clock.
    Page(ScanPage, Hlc),
    /// To a question about layouts.
    Layout(ChainAnswer<Layout>),
    /// There is none.
    Failed(Failure),
}

impl Reply {
    /// As that to a store.
    pub(crate) fn of_store(self) -> StoreAnswer {
        match self {
            Self::Stored(answer) => answer,
            Self::Failed(failure) => StoreAnswer::Failed(failure),
            Self::Read(_) | Self::Repair(_) | Self::Page(..) | Self::Layout(_) => StoreAnswer::Failed(Failure::Corrupt),
        }
    }
}
