//! One shard: a single-threaded runtime with its share of the client connections and a connection of
//! its own to every peer. A request stays on the shard that accepted it; nothing here is locked. One more, the
//! *background* shard, has no clients and coordinates nothing: its connections carry bulk traffic.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use kvorum_core::placement::NodeId;
use kvorum_core::quorum::{Failure, StoreAnswer};
use tokio::sync::oneshot;

use crate::anti_entropy::AntiEntropy;
use crate::calls::{Calls, Reply};
use crate::clock::Clock;
use crate::commit::{Done, Ticket};
use crate::coordinator::operations::{OperationId, Operations};
use crate::cpu_share::{CpuShare, Work};
use crate::large_values::LargeValues;
use crate::mailbox::{Event, Mailbox};
use crate::membership::Membership;
use crate::peer::client::PeerClient;
use crate::peer::dial::Dial;
use crate::peer::link::Flusher;
use crate::peer::server::PeerAsker;
use crate::read_pool::ReadPool;
use crate::replica::{Held, Replica};

/// Limits and times that a shard works with.
#[derive(Clone, Debug)]
pub struct ShardSettings {
    /// The whole of a request, both attempts.
    pub deadline: Duration,
    /// Whom a read asks first.
    pub fan_out: FanOut,
    /// Longest frame payload.
    pub frame_bytes_max: usize,
    /// Chunks of unfinished large frames, per connection.
    pub partial_bytes_max: usize,
    /// What may wait to be written, per connection.
    pub peer_queue_bytes_max: usize,
    /// For connecting and the handshake.
    pub connect_timeout: Duration,
    /// The back-off's upper end.
    pub reconnect_delay_max: Duration,
}

/// Whom a read asks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanOut {
    /// The fastest `ack`, the rest after a delay.
    Hedged,
    /// Everybody.
    All,
}

impl ShardSettings {
    /// The deadline in milliseconds, as the handshake says it.
    #[must_use]
    pub fn deadline_ms(&self) -> u64 {
        u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Who waits for an answer from another thread.
pub enum Asker {
    /// A request that this shard coordinates.
    Operation(OperationId),
    /// A peer.
    Peer(PeerAsker),
    /// Background work of this shard.
    Call(oneshot::Sender<Reply>),
    /// Whoever waits for something to be durable: the clock's bound, a fact of anti-entropy.
    Durable(oneshot::Sender<Result<(), Failure>>),
}

/// What the tasks of one shard share.
pub struct Shard {
    /// Its number.
    pub index: u16,
    /// Limits and times.
    pub settings: ShardSettings,
    /// The node's clock.
    pub clock: Arc<Clock>,
    /// The node's identity and standing.
    pub membership: Arc<Membership>,
    /// This node as a replica.
    pub replica: Replica<Asker>,
    /// What may block on the disk and somebody waits for.
    pub pool: ReadPool,
    /// Scans of what the node holds.
    pub scans: ReadPool,
    /// What background work takes of a core.
    pub cpu_share: CpuShare,
    /// The node's memory for large values.
    pub large_values: Arc<LargeValues>,
    /// Writes the peer connections.
    pub flusher: Rc<Flusher>,
    /// Makes them.
    pub dial: Box<dyn Dial>,
    /// By node; none for this one.
    pub peers: Vec<Option<Rc<PeerClient>>>,
    /// Requests that this shard coordinates.
    pub operations: Operations,
    /// Questions of its background work.
    pub calls: Calls,
    /// The node's part in rounds of anti-entropy.
    pub anti_entropy: Arc<AntiEntropy>,
}

/// How long a scan waits at most for reads of requests.
pub(crate) const YIELDS_MAX: u32 = 100;
pub(crate) const YIELD: Duration = Duration::from_millis(1);
/// A scan has one of so many parts of the share (decision 0038).
const SCAN_PARTS: u32 = 4;

impl Shard {
    /// Runs a part of a scan, behind the reads of requests that wait for the disk, and rests for it while requests
    /// come, a quarter of the share; nothing if the node stops first. A part of several pages rests after each.
    pub async fn scan<T: Send + 'static>(&self, part: impl FnOnce(&mut Work) -> T + Send + 'static) -> Option<T> {
        for _ in 0..YIELDS_MAX {
            if self.pool.depth() == 0 {
                break;
            }
            tokio::time::sleep(YIELD).await;
        }
        let share = self.cpu_share.clone();
        let part = move || {
            let mut work = share.begin_part(SCAN_PARTS);
            let result = part(&mut work);
            work.pause();
            result
        };
        self.scans.run(part).await
    }

    /// The connection to a node; none for this one.
    #[must_use]
    pub fn peer(&self, node: NodeId) -> Option<&Rc<PeerClient>> {
        self.peers.get(usize::from(node.0)).and_then(Option::as_ref)
    }

    /// Hands out what other threads have done. Runs until it is dropped.
    pub async fn take_mail(self: Rc<Self>, mailbox: Arc<Mailbox>) {
        let mut events = Vec::new();
        loop {
            mailbox.take(&mut events).await;
            for event in events.drain(..) {
                self.take_event(event);
            }
        }
    }

    fn take_event(self: &Rc<Self>, event: Event) {
        match event {
            Event::Commit(Done::Stored { ticket, answer }) => {
                let (asker, abstains) = self.replica.answered(ticket);
                // What failed has failed all the same: `Rebuilding` says that it was carried out.
                let answer = match answer {
                    StoreAnswer::Failed(_) => answer,
                    _ => abstains.map_or(answer, StoreAnswer::Failed),
                };
                match asker {
                    Asker::Peer(asker) => asker.stored(self, answer),
                    Asker::Operation(id) => self.operations.on_stored(self, self.membership.own(), id.get(), answer),
                    // Whoever asked may have given up.
                    Asker::Call(waiting) => _ = waiting.send(Reply::Stored(answer)),
                    Asker::Durable(_) => unreachable!("that asks for no store"),
                }
            }
            Event::Commit(Done::Raised { ticket, bound }) => {
                self.tell_durable(ticket, bound.map(|_| ()));
            }
            Event::Commit(Done::Heeded { ticket, result }) => self.tell_durable(ticket, result),
            Event::Read { ticket, held } => {
                let (asker, abstains) = self.replica.answered(ticket);
                let held = abstains.map_or(held, Held::Failed);
                match asker {
                    Asker::Peer(asker) => asker.read(self, held),
                    Asker::Operation(id) => self.operations.on_held(self, id.get(), held),
                    // Whoever asked may have given up.
                    Asker::Call(waiting) => _ = waiting.send(Reply::Read(held)),
                    Asker::Durable(_) => unreachable!("that asks for no read"),
                }
            }
        }
    }

    fn tell_durable(&self, ticket: Ticket, result: Result<(), Failure>) {
        if let Asker::Durable(waiting) = self.replica.redeem(ticket) {
            // Whoever asked may have given up.
            let _ = waiting.send(result);
        }
    }

    /// Starts everything that runs for as long as the shard does.
    pub fn start(self: &Rc<Self>, mailbox: Arc<Mailbox>) {
        tokio::task::spawn_local(self.clone().take_mail(mailbox));
        tokio::task::spawn_local(self.flusher.clone().run());
        tokio::task::spawn_local(crate::coordinator::timers::run_timers(self.clone()));
        for peer in self.peers.iter().flatten() {
            tokio::task::spawn_local(peer.clone().run(self.clone()));
        }
    }
}
