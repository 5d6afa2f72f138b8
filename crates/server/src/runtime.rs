//! A shard's thread: its runtime, its tasks, and what HTTP needs of the rest of the node; and the thread of
//! the *background* shard, which has no clients: bulk traffic between nodes has connections of its own there,
//! and never a queue in common with a request.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use hyper::StatusCode;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue};
use kvorum_base::clock::Clock;
use kvorum_base::priority;
use kvorum_config::{Config, HttpSection, ReadFanout};
use kvorum_core::Key;
use kvorum_core::frame::{INTERLEAVED_MAX, PAYLOAD_OVERHEAD_MAX};
use kvorum_core::layout::LAYOUT_BYTES_MAX;
use kvorum_core::scan::page::PAGE_OVERHEAD_MAX;
use kvorum_http::api::{KeyNames, Scripts};
use kvorum_http::{
    Admin, AdminFuture, AuditLog, BrowserRules, Gate, HttpParts, HttpSettings, HttpShard, IncomingStream, PageFuture,
    PageRoom, PeerRefusal, PeerUpgrade, RangeError, Ranges, serve_connection,
};
use kvorum_peer::context::{PeerContext, PeerSettings};
use kvorum_peer::dial::{Tcp, widen_on_loopback};
use kvorum_peer::error::{CallRefused, ProtocolError};
use kvorum_peer::first_dials::FirstDial;
use kvorum_peer::handler::FrameHandler;
use kvorum_peer::handshake::Hello;
use kvorum_peer::server;
use kvorum_peer::slow::transport;
use kvorum_replication::coordinator::Coordinator;
use kvorum_replication::coordinator::hedge::Hedging;
use kvorum_replication::replica::Mailbox;
use kvorum_replication::scrub::Scrubber;
use kvorum_replication::shard::{FanOut, Shard, ShardParts};
use kvorum_storage::PageLimit;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::LocalSet;

use crate::audit::ShardAudit;
use crate::handover::{TcpHandover, drain_max};
use crate::view::NodeView;

/// Between two looks for a backup that was not fetched.
const OLD_BACKUP_LOOK: Duration = Duration::from_secs(5);

/// Between two looks at the figures of the store.
const STORE_LOOK: Duration = Duration::from_millis(500);
/// Between two looks whether a window of hot keys has ended.
const HOT_LOOK: Duration = Duration::from_secs(1);

/// What a shard is given by its node.
pub(crate) struct ThreadParts {
    pub(crate) index: u16,
    pub(crate) clock: Arc<Clock>,
    pub(crate) view: Arc<NodeView>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) connections: mpsc::Receiver<TcpHandover>,
    /// One for each peer.
    pub(crate) first_dials: Vec<FirstDial>,
    /// Becomes true when the node drains; dropped when the shard has.
    pub(crate) drain: watch::Receiver<bool>,
}

/// What the background shard is given by its node.
pub(crate) struct BackgroundParts {
    /// One more than those of the shards that have clients.
    pub(crate) index: u16,
    pub(crate) clock: Arc<Clock>,
    pub(crate) view: Arc<NodeView>,
    pub(crate) mailbox: Arc<Mailbox>,
    /// Ends when the node has no more for it to do.
    pub(crate) stop: oneshot::Receiver<()>,
}

/// Runs a shard until the node drains, its connections are done, and the node gives it no more of them.
pub(crate) fn run_shard(config: &Config, parts: ThreadParts) {
    block_on(serve(config, parts));
}

/// Runs the background shard until it is to stop.
pub(crate) fn run_background(config: &Config, parts: BackgroundParts) {
    priority::lower_to(priority::WORK);
    let BackgroundParts { index, clock, view, mailbox, stop } = parts;
    block_on(async move {
        let shard = shard(config, index, clock, &view, mailbox, Vec::new());
        shard.start();
        let scrubber = Scrubber {
            peers: shard.peers.clone(),
            scan: shard.scan.clone(),
            coordinator: shard.coordinator.clone(),
            store: view.store.clone(),
            layout: shard.layout.clone(),
            scrub: view.scrub.clone(),
        };
        tokio::task::spawn_local(scrubber.run());
        let (membership, pool, store) = (view.membership.clone(), view.pool.clone(), view.store.clone());
        tokio::task::spawn_local(kvorum_replication::backpressure::run(membership, pool, store));
        tokio::task::spawn_local(shard.driver().run());
        tokio::task::spawn_local(shard.layout_driver(config.quorum.replicas()).run());
        tokio::task::spawn_local(forget_old_backups(view.clone()));
        tokio::task::spawn_local(sample_store(view.clone()));
        kvorum_replication::hints::run::run(shard.hint_store(), stop).await;
    });
}

/// Looks for a backup that was not fetched, without end.
async fn forget_old_backups(view: Arc<NodeView>) {
    loop {
        tokio::time::sleep(OLD_BACKUP_LOOK).await;
        let old = view.clone();
        // Where the pool is full the next look will do.
        let _ = view.pool.submit(Box::new(move || old.forget_old_backup()));
    }
}

/// Looks at the store and its file system, without end.
async fn sample_store(view: Arc<NodeView>) {
    loop {
        tokio::time::sleep(STORE_LOOK).await;
        let looked = view.clone();
        if view.pool.run(move || looked.sample_store()).await.is_none() {
            return;
        }
    }
}

/// Publishes windows of hot keys as they end, without end.
async fn publish_hot(coordinator: Coordinator) {
    loop {
        tokio::time::sleep(HOT_LOOK).await;
        coordinator.publish_hot();
    }
}

fn block_on(task: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the node has started a runtime before, with the same limits");
    LocalSet::new().block_on(&runtime, task);
    // Not dropped: that would wait for a peer's name to be looked up, for however long that takes.
    runtime.shutdown_background();
}

async fn serve(config: &Config, parts: ThreadParts) {
    let ThreadParts { index, clock, view, mailbox, mut connections, first_dials, mut drain } = parts;
    let shard = shard(config, index, clock, &view, mailbox, first_dials);
    shard.start();
    let http = http(config, index, &shard, &view);
    tokio::task::spawn_local(http.clone().run_sweeper());
    tokio::task::spawn_local(publish_hot(shard.coordinator.clone()));
    tokio::select! {
        () = take(&mut connections, &http) => {}
        _ = drain.wait_for(|drains| *drains) => {}
    }
    http.drain();
    tokio::select! {
        drained = tokio::time::timeout(drain_max(), http.drained()) => if drained.is_err() {
            tracing::warn!(shard = index, connections = http.connections(), "connections did not finish in time");
        },
        // A new connection gets the answer that the node is stopping.
        () = take(&mut connections, &http) => {}
    }
    drop(drain);
    take(&mut connections, &http).await;
    shard.coordinator.end();
}

/// Takes connections from the node until there will be no more. Cancel safe.
async fn take(connections: &mut mpsc::Receiver<TcpHandover>, http: &Rc<HttpShard<Coordinator>>) {
    while let Some(TcpHandover { stream, address, seat }) = connections.recv().await {
        match TcpStream::from_std(stream) {
            Ok(stream) => serve_connection(IncomingStream { stream, address, seat }, http.clone()),
            Err(error) => tracing::warn!(%error, "cannot serve a connection"),
        }
    }
}

/// A shard, not started. The node waits for its `first_dials`: for none where they are fewer than peers.
fn shard(
    config: &Config,
    index: u16,
    clock: Arc<Clock>,
    view: &Arc<NodeView>,
    mailbox: Arc<Mailbox>,
    first_dials: Vec<FirstDial>,
) -> Shard {
    let record_bytes_max = config.limits.value_bytes_max.get() + PAYLOAD_OVERHEAD_MAX + PAGE_OVERHEAD_MAX;
    let frame_bytes_max = record_bytes_max.max(LAYOUT_BYTES_MAX);
    Shard::new(ShardParts {
        index,
        peers: PeerSettings {
            deadline: config.coordinator.deadline,
            frame_bytes_max,
            partial_bytes_max: frame_bytes_max * INTERLEAVED_MAX,
            queue_bytes_max: config.peer.queue_bytes_max.get(),
            connect_timeout: config.peer.connect_timeout,
            reconnect_delay_max: config.peer.reconnect_delay_max,
        },
        fan_out: match config.coordinator.read_fanout {
            ReadFanout::Hedged => FanOut::Hedged,
            ReadFanout::All => FanOut::All,
        },
        hedging: Hedging::new(u32::from(config.coordinator.hedge_budget.get()), config.coordinator.deadline / 4),
        lingering_max: config.coordinator.requests_max.get(),
        clock,
        membership: view.membership.clone(),
        store: view.store.clone(),
        queue: view.queue.clone(),
        pool: view.pool.clone(),
        scans: view.scans.clone(),
        mailbox,
        cpu_share: view.cpu_share.clone(),
        large_values: view.large_values.clone(),
        scan_budget: view.scan_budget.clone(),
        derivation: view.work.clone(),
        hints: view.hints.clone(),
        anti_entropy: view.anti_entropy.clone(),
        // The background shard coordinates nothing for clients.
        metrics: view.coordinators.get(usize::from(index)).cloned().unwrap_or_default(),
        dial: Box::new(Tcp { faults: view.faults.clone() }),
        secret: view.guards.peer_secret.clone(),
        room: view.peer_room.clone(),
        first_dials,
    })
}

fn http(config: &Config, index: u16, shard: &Shard, view: &Arc<NodeView>) -> Rc<HttpShard<Coordinator>> {
    let settings = HttpSettings {
        value_bytes_max: config.limits.value_bytes_max.get(),
        request_read_timeout: config.limits.request_read_timeout,
        idle_timeout: config.limits.idle_timeout,
        write_timeout: config.limits.write_timeout,
        answer_rate_min: config.limits.answer_rate_min.get(),
        connections_max: config.limits.connections_max.get(),
        requests_max: config.coordinator.requests_max.get(),
        scan_page_bytes: config.limits.scan_page_bytes.get(),
        founding_copies: config.quorum.replicas(),
        default_ttl_s: config.limits.ttl_default.map(|ttl| u32::try_from(ttl.as_secs()).expect("at most ten years")),
        browsers: browser_rules(config),
    };
    let (peer_context, handler) = (shard.peer_context.clone(), shard.handler.clone());
    let node_http = Rc::new(NodeHttp { peer_context, handler, view: view.clone() });
    let clock = shard.clock.clone();
    let parts = HttpParts {
        entities: Rc::new(shard.coordinator.clone()),
        ranges: node_http.clone(),
        scans: Box::new(shard.scanner.clone()),
        scripts: view.work.scripts().map(|scripts| Rc::new(scripts.clone()) as Rc<dyn Scripts>),
        admin: node_http.clone(),
        peers: node_http,
        gate: gate(view, shard.clock.clone()),
        audit: view.guards.audit.clone().map(|audit| Rc::new(ShardAudit(audit)) as Rc<dyn AuditLog>),
        large_values: view.large_values.clone(),
        shares: view.client_shares.clone(),
        metrics: view.http.get(usize::from(index)).expect("one for each shard").clone(),
        wall: Rc::new(move || SystemTime::UNIX_EPOCH + Duration::from_millis(clock.wall_ms())),
        faults: view.faults.clone(),
        request_id_seed: shard.clock.wall_ms() << 16 | u64::from(index) << 8,
    };
    HttpShard::new(parts, settings)
}

/// Looks at keys, if the node has a file of them.
fn gate(view: &NodeView, clock: Arc<Clock>) -> Option<Rc<Gate>> {
    let auth = view.guards.auth.clone()?;
    Some(Gate::new(auth, Box::new(move || clock.boot())))
}

/// The names of the node, and the pages that may use it.
pub(crate) fn browser_rules(config: &Config) -> BrowserRules {
    let HttpSection { allowed_hosts, allowed_origins } = &config.http;
    let members = config.members.iter().map(|member| member.url.address().host().to_owned());
    let automatic = members.chain([config.listen.host().to_owned(), "localhost".to_owned()]);
    // Its own name always, which a browser shows without a port that is the scheme's.
    let own = config.own.address().host().to_owned();
    let hosts = allowed_hosts.names.iter().cloned().chain([own]).chain(automatic.filter(|_| allowed_hosts.auto));
    BrowserRules {
        own: config.own.address().to_string(),
        hosts: hosts.collect(),
        addresses: allowed_hosts.auto,
        origins: allowed_origins.clone(),
    }
}

/// What HTTP reaches of the node, besides the coordinator.
struct NodeHttp {
    peer_context: Rc<PeerContext>,
    handler: Rc<dyn FrameHandler>,
    view: Arc<NodeView>,
}

impl Ranges for NodeHttp {
    fn clock_ms(&self) -> u64 {
        self.view.clock.present().millis()
    }

    fn page(&self, start: Bytes, end: Option<Bytes>, limit: PageLimit, mut room: PageRoom) -> PageFuture {
        let (send, receive) = oneshot::channel();
        let store = self.view.store.clone();
        let job = move || {
            let page = store.scan(&start, end.as_deref(), limit);
            let page = page.map_err(|error| RangeError::Failed(error.to_string()));
            // A client that has gone needs no answer.
            let _ = send.send(page.and_then(|page| room.grow_to(&page).map(|()| (page, room))));
        };
        let submitted = self.view.pool.submit(Box::new(job)).is_ok();
        Box::pin(async move {
            if !submitted {
                return Err(RangeError::Overloaded);
            }
            receive.await.map_err(|_| RangeError::Failed("the read pool stopped".to_owned()))?
        })
    }
}

impl Admin for NodeHttp {
    fn live(&self) -> Result<(), String> {
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        self.view.ready()
    }

    fn started(&self) -> Result<(), String> {
        self.view.started()
    }

    fn cluster_json(&self) -> Vec<u8> {
        crate::pages::cluster(&self.view)
    }

    fn scrub(&self) -> Vec<u8> {
        crate::pages::scrub_asked(&self.view)
    }

    fn backup(&self) -> AdminFuture {
        let (send, receive) = oneshot::channel();
        let view = self.view.clone();
        let job = move || {
            let taken = view.take_backup().map(|(path, label)| crate::pages::backup(&path, &label));
            // The caller may have gone: the backup is there all the same.
            let _ = send.send(taken);
        };
        let submitted = self.view.pool.submit(Box::new(job)).is_ok();
        Box::pin(async move {
            if !submitted {
                return Err("as many reads from disk are waiting as may wait".to_owned());
            }
            receive.await.unwrap_or_else(|_| Err("the node is stopping".to_owned()))
        })
    }

    fn repair_json(&self) -> Vec<u8> {
        crate::pages::repair(&self.view)
    }

    fn begin_repair(&self) -> u64 {
        self.view.anti_entropy.want()
    }

    fn end_repair(&self) -> Vec<u8> {
        crate::pages::stopping(self.view.anti_entropy.stop_round())
    }

    fn end_scrub(&self) -> Vec<u8> {
        crate::pages::stopping(self.view.scrub.stop())
    }

    fn metrics_text(&self) -> String {
        crate::exposition::text(&self.view)
    }

    fn stats_json(&self) -> Vec<u8> {
        crate::exposition::stats(&self.view)
    }

    fn slow_json(&self) -> Vec<u8> {
        crate::requests::slow(&self.view)
    }

    fn hot_json(&self, names: KeyNames) -> Vec<u8> {
        crate::requests::hot(&self.view, names)
    }

    fn layout_json(&self, key: Option<&Key>) -> Vec<u8> {
        let layout = self.view.membership.layout();
        match key {
            Some(key) => crate::requests::where_is(key, &layout),
            None => crate::requests::layout(&layout),
        }
    }
}

impl PeerUpgrade for NodeHttp {
    fn accept(&self, headers: &HeaderMap, address: IpAddr) -> Result<HeaderMap, PeerRefusal> {
        let hello = Hello::parse(|name| headers.get(name).map(HeaderValue::as_bytes));
        match server::answer(&self.peer_context, hello.as_ref().map_err(Clone::clone), Some(address)) {
            Ok(ours) => {
                let mut answer = ours.headers();
                answer.insert(CONNECTION, HeaderValue::from_static("upgrade"));
                Ok(answer)
            }
            Err(refused) => Err(PeerRefusal {
                status: match refused {
                    CallRefused::Handshake(_) => StatusCode::CONFLICT,
                    CallRefused::Accuser => StatusCode::SERVICE_UNAVAILABLE,
                },
                title: "Not A Peer",
                detail: refused.to_string(),
            }),
        }
    }

    fn upgraded(&self, stream: TcpStream, read_ahead: Bytes, hello: HeaderMap, answer: HeaderMap) {
        let read = |headers: &HeaderMap| Hello::parse(|name| headers.get(name).map(HeaderValue::as_bytes));
        let (Ok(hello), Ok(ours)) = (read(&hello), read(&answer)) else { return };
        let input = BytesMut::from(&*read_ahead);
        let (context, handler) = (self.peer_context.clone(), self.handler.clone());
        let audit = self.view.guards.audit.clone();
        // Without it the peer is only slower.
        let _ = widen_on_loopback(&stream);
        let address = stream.peer_addr().map(|address| address.ip()).ok();
        let stream = transport(stream, self.view.faults.as_ref());
        let served = server::accept(context, handler, stream, hello, ours, input, address);
        tokio::task::spawn_local(async move {
            if let (Err(ProtocolError::NoProof), Some(audit), Some(address)) = (served.await, audit, address) {
                audit.note_unproven(address);
            }
        });
    }
}
