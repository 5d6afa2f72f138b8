//! Answers of this node to questions about layouts. What they promise is durable before they are given.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::clock::Clock;
use kvorum_base::log_limit::LogLimit;
use kvorum_core::chain;
use kvorum_core::chain::{ChainAnswer, ChainRequest};
use kvorum_core::layout::Layout;
use kvorum_core::quorum::Failure;
use kvorum_peer::membership::Membership;
use kvorum_storage::data_dir::DataDirError;

/// Questions of peers that are answered at once, on a shard: each has a layout in memory, and writes it to the disk.
const QUESTIONS_MAX: usize = 8;

/// This node's part in the decisions about layouts.
pub struct LayoutVoter {
    clock: Arc<Clock>,
    membership: Arc<Membership>,
    pool: ReadPool,
    under_way: Cell<usize>,
    failing: LogLimit,
}

/// A peer's question that is being answered.
struct LayoutQuestion(Rc<LayoutVoter>);

impl Drop for LayoutQuestion {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
    }
}

impl LayoutVoter {
    /// Of this node; what may block runs on the pool.
    #[must_use]
    pub fn new(clock: Arc<Clock>, membership: Arc<Membership>, pool: ReadPool) -> Rc<Self> {
        Rc::new(Self { clock, membership, pool, under_way: Cell::default(), failing: LogLimit::default() })
    }

    /// Answers a peer. Dropped, what it has promised stays promised.
    ///
    /// # Errors
    /// [`Failure::Overloaded`] where too many ask, and [`Failure::NotServing`] where it could not be made durable.
    pub async fn answer_peer(self: Rc<Self>, request: ChainRequest<Layout>) -> Result<Bytes, Failure> {
        if self.under_way.get() >= QUESTIONS_MAX {
            return Err(Failure::Overloaded);
        }
        self.under_way.set(self.under_way.get() + 1);
        let asked = LayoutQuestion(self);
        asked.0.answer(request).await.map(|answer| chain::encode(&answer).into())
    }

    /// Answers this node itself.
    ///
    /// # Errors
    /// [`Failure::NotServing`]
    pub async fn answer(&self, request: ChainRequest<Layout>) -> Result<ChainAnswer<Layout>, Failure> {
        self.change(move |membership| membership.answer_layout(request)).await
    }

    /// Changes what this node knows and has promised.
    ///
    /// # Errors
    /// [`Failure::NotServing`], where it could not be made durable.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Membership) -> Result<T, DataDirError> + Send + 'static,
    ) -> Result<T, Failure> {
        let membership = self.membership.clone();
        match self.pool.run(move || change(&membership)).await {
            Some(Ok(changed)) => Ok(changed),
            Some(Err(error)) => {
                if let Some(left_out) = self.failing.due(self.clock.boot()) {
                    tracing::error!(%error, left_out, "cannot write down what is known of layouts");
                }
                Err(Failure::NotServing)
            }
            None => Err(Failure::NotServing),
        }
    }
}
