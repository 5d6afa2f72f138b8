//! The network: connections whose frames may be dropped, delayed, doubled and overtaken.
//!
//! Faults are injected at frames and not at bytes: what the production code writes is cut into whole frames by
//! the lengths in their headers, and each frame has a fate of its own. That is harsher than TCP, which a
//! simulator of TCP would hide. An end of a connection is an event like a frame, and may be lost as well.
//!
//! Handshakes are the production code's `Hello`s, without the HTTP around them.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io::{Error, ErrorKind, Result as IoResult};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kvorum_core::frame::{Decoder, HEADER_BYTES};
use kvorum_peer::dial::{ConnectError, Dial, Dialled, Dialling};
use kvorum_peer::handshake::Hello;
use kvorum_peer::transport::Transport;
use tokio::sync::{Notify, oneshot};

use crate::chance::SimRandom;
use crate::trace::Trace;

/// Bytes under way on a connection and direction before a write blocks.
const WINDOW_BYTES: usize = 256 * 1024;

/// What may happen to a frame on a link from one node to another.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    /// Frames lost.
    pub drop_permille: u64,
    /// Frames that arrive twice.
    pub double_permille: u64,
    /// Frames that leave the order, and may be overtaken.
    pub stray_permille: u64,
    /// The usual way takes one to so many milliseconds.
    pub delay_ms: u64,
    /// A stray's takes up to so many more.
    pub stray_ms: u64,
}

impl Noise {
    /// A network without faults, whose way takes up to so long.
    #[must_use]
    pub fn none(delay_ms: u64) -> Self {
        Self { drop_permille: 0, double_permille: 0, stray_permille: 0, delay_ms, stray_ms: 0 }
    }
}

struct SimLink {
    noise: Noise,
    /// Everything sent is lost.
    is_cut: bool,
    /// Everything sent waits here, in order, until the link is unclogged.
    clogged: Option<Vec<Packet>>,
}

/// How a handshake begins at the node that was called.
pub type AcceptHandshake = Rc<dyn Fn(IncomingCall)>;

struct SimNode {
    /// Only while its process runs.
    listener: Option<AcceptHandshake>,
    /// What comes for a machine without power is lost; from a machine without a process comes a refusal.
    has_power: bool,
}

/// The whole network.
pub struct Network {
    chance: RefCell<SimRandom>,
    links: RefCell<Vec<Vec<SimLink>>>,
    nodes: RefCell<Vec<SimNode>>,
    under_way: RefCell<BinaryHeap<UnderWay>>,
    wake: Notify,
    sequence: Cell<u64>,
    connections: Cell<u64>,
    /// Those that have been made, in their order, until both of their ends are over.
    open: RefCell<Vec<Weak<SimConnection>>>,
    /// Frames that something happened to.
    disturbed: Cell<u64>,
    /// What there is without faults.
    pub usual: Noise,
    trace: Arc<Trace>,
}

struct UnderWay {
    at: Duration,
    sequence: u64,
    packet: Packet,
}

impl PartialEq for UnderWay {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for UnderWay {}

impl PartialOrd for UnderWay {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UnderWay {
    /// The heap gives its greatest: the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

struct Packet {
    from: usize,
    to: usize,
    content: Content,
}

enum Content {
    /// From this side of the connection.
    Frame { connection: Rc<SimConnection>, side: usize, bytes: Bytes },
    /// Nothing more comes from this side.
    End { connection: Rc<SimConnection>, side: usize },
    /// A call, with the caller's hello.
    Call { hello: Hello, reply: oneshot::Sender<Result<Dialled, ConnectError>> },
    /// Its answer.
    Reply { answer: Result<Dialled, ConnectError>, reply: oneshot::Sender<Result<Dialled, ConnectError>> },
}

struct SimConnection {
    number: u64,
    /// The caller, and the called.
    nodes: [usize; 2],
    ends: [RefCell<StreamEnd>; 2],
}

#[derive(Default)]
struct StreamEnd {
    /// What has arrived.
    input: BytesMut,
    /// The beginning of a frame that was not written whole.
    output: BytesMut,
    /// Bytes sent that have not arrived and are not lost.
    in_flight: usize,
    /// Before this nothing arrives that keeps the order.
    arrived_by: Duration,
    is_over: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl StreamEnd {
    fn wake(&mut self) {
        [self.reader.take(), self.writer.take()].into_iter().flatten().for_each(Waker::wake);
    }
}

impl Network {
    /// One of so many nodes, with this noise where there is no other.
    #[must_use]
    pub fn new(nodes: usize, noise: Noise, chance: SimRandom, trace: Arc<Trace>) -> Rc<Self> {
        let link = || SimLink { noise, is_cut: false, clogged: None };
        let links = (0..nodes).map(|_| (0..nodes).map(|_| link()).collect()).collect();
        let node = || SimNode { listener: None, has_power: true };
        Rc::new(Self {
            chance: RefCell::new(chance),
            links: RefCell::new(links),
            nodes: RefCell::new((0..nodes).map(|_| node()).collect()),
            under_way: RefCell::default(),
            wake: Notify::new(),
            sequence: Cell::new(0),
            connections: Cell::new(0),
            open: RefCell::default(),
            disturbed: Cell::new(0),
            usual: noise,
            trace,
        })
    }

    /// Frames that were dropped, doubled or strayed so far.
    pub fn disturbed(&self) -> u64 {
        self.disturbed.get()
    }

    /// Calls for `node` go to `listener` from now on; without one they are refused.
    pub fn listen(&self, node: usize, listener: Option<AcceptHandshake>) {
        let before = std::mem::replace(&mut self.nodes.borrow_mut()[node].listener, listener);
        drop(before);
    }

    /// A process has ended: so have its connections, in the order in which they were made, as a kernel does it, and not
    /// in that in which the process held them.
    pub fn end_all(self: &Rc<Self>, node: usize) {
        let open = self.open.take();
        for connection in open.iter().filter_map(Weak::upgrade) {
            for side in 0..2 {
                if connection.nodes[side] == node {
                    drop(StreamHalf { network: self.clone(), connection: connection.clone(), side });
                }
            }
        }
        let is_open = |one: &Weak<SimConnection>| {
            one.upgrade().is_some_and(|connection| connection.ends.iter().any(|end| !end.borrow().is_over))
        };
        self.open.borrow_mut().extend(open.into_iter().filter(is_open));
    }

    /// A machine without power neither sends nor receives.
    pub fn power_off(&self, node: usize) {
        self.nodes.borrow_mut()[node].has_power = false;
    }

    /// It does both again.
    pub fn power_on(&self, node: usize) {
        self.nodes.borrow_mut()[node].has_power = true;
    }

    /// Loses everything from `from` to `to`, what is under way included.
    pub fn cut(&self, from: usize, to: usize) {
        self.links.borrow_mut()[from][to].is_cut = true;
    }

    /// Ends [`Network::cut`].
    pub fn join(&self, from: usize, to: usize) {
        self.links.borrow_mut()[from][to].is_cut = false;
    }

    /// Changes what happens to frames from `from` to `to`.
    pub fn set_noise(&self, from: usize, to: usize, noise: Noise) {
        self.links.borrow_mut()[from][to].noise = noise;
    }

    /// Holds everything back that is sent from `from` to `to` from now on.
    pub fn clog(&self, from: usize, to: usize) {
        self.links.borrow_mut()[from][to].clogged.get_or_insert_default();
    }

    /// Lets it go on.
    pub fn unclog(&self, from: usize, to: usize) {
        let waiting = self.links.borrow_mut()[from][to].clogged.take();
        for packet in waiting.into_iter().flatten() {
            self.send(packet);
        }
    }

    /// Everything works again; what happened to frames on the way stays.
    pub fn heal(&self) {
        let nodes = self.nodes.borrow().len();
        for from in 0..nodes {
            for to in 0..nodes {
                self.join(from, to);
                self.set_noise(from, to, self.usual);
                self.unclog(from, to);
            }
        }
    }

    /// Drops everything, so that nothing holds anything any more.
    pub fn clear(&self) {
        self.heal();
        let nodes = self.nodes.borrow().len();
        for node in 0..nodes {
            self.listen(node, None);
        }
        let under_way = self.under_way.take();
        drop(under_way);
    }

    fn send(&self, packet: Packet) {
        let (from, to) = (packet.from, packet.to);
        let nodes = self.nodes.borrow();
        let mut links = self.links.borrow_mut();
        let link = &mut links[from][to];
        if link.is_cut || !nodes[from].has_power {
            drop((links, nodes));
            return self.lose(packet);
        }
        if let Some(clogged) = &mut link.clogged {
            return clogged.push(packet);
        }
        let noise = link.noise;
        drop((links, nodes));
        let mut chance = self.chance.borrow_mut();
        let is_frame = matches!(packet.content, Content::Frame { .. });
        let fates = [noise.drop_permille, noise.double_permille, noise.stray_permille];
        let [is_dropped, is_doubled, is_stray] = fates.map(|permille| is_frame && chance.happens(permille));
        if is_dropped || is_doubled || is_stray {
            self.disturbed.set(self.disturbed.get() + 1);
        }
        let way = chance.millis(1..noise.delay_ms + 1);
        let detour = chance.millis(0..noise.stray_ms + 1);
        drop(chance);
        if is_dropped {
            return self.lose(packet);
        }
        let now = self.trace.now();
        if is_doubled && let Some(copy) = packet.copy() {
            self.put(now + way + detour, copy);
        }
        match packet.arrival() {
            Some(_) if is_stray => self.put(now + way + detour, packet),
            Some((connection, side)) => {
                let mut end = connection.ends[side].borrow_mut();
                end.arrived_by = end.arrived_by.max(now + way);
                self.put(end.arrived_by, packet);
            }
            None => self.put(now + way, packet),
        }
    }

    fn put(&self, at: Duration, packet: Packet) {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        self.under_way.borrow_mut().push(UnderWay { at, sequence, packet });
        self.wake.notify_one();
    }

    fn lose(&self, packet: Packet) {
        if let Content::Frame { connection, side, bytes } = &packet.content {
            connection.landed(*side, bytes.len());
        }
    }

    /// Delivers what is under way. Runs until it is dropped.
    pub async fn run(self: Rc<Self>) {
        loop {
            let next = self.under_way.borrow().peek().map(|next| next.at);
            let now = self.trace.now();
            match next {
                None => self.wake.notified().await,
                Some(at) if at > now => tokio::select! {
                    biased;
                    () = tokio::time::sleep(at - now) => {}
                    () = self.wake.notified() => {}
                },
                Some(_) => {
                    let due = self.under_way.borrow_mut().pop();
                    due.into_iter().for_each(|due| self.deliver(due.packet));
                }
            }
        }
    }

    fn deliver(&self, packet: Packet) {
        let (from, to) = (packet.from, packet.to);
        if self.links.borrow()[from][to].is_cut || !self.nodes.borrow()[to].has_power {
            return self.lose(packet);
        }
        match packet.content {
            Content::Frame { connection, side, bytes } => self.deliver_frame(&connection, side, &bytes),
            Content::End { connection, side } => {
                self.trace.event(&format!("{from}>{to} end of connection {}", connection.number));
                let mut end = connection.ends[1 - side].borrow_mut();
                end.is_over = true;
                end.wake();
            }
            Content::Call { hello, reply } => {
                self.trace.event(&format!("{from}>{to} call"));
                let listener = self.nodes.borrow()[to].listener.clone();
                match listener {
                    Some(listener) => listener(IncomingCall { from, to, hello, reply }),
                    None => {
                        let answer = Err(Error::from(ErrorKind::ConnectionRefused).into());
                        self.send(Packet { from: to, to: from, content: Content::Reply { answer, reply } });
                    }
                }
            }
            Content::Reply { answer, reply } => {
                let text = answer.as_ref().map(|_| "yes").unwrap_or("no");
                self.trace.event(&format!("{from}>{to} reply {text}"));
                // The caller may have given up.
                let _ = reply.send(answer);
            }
        }
    }

    fn deliver_frame(&self, connection: &Rc<SimConnection>, side: usize, bytes: &Bytes) {
        let [from, to] = if side == 0 { connection.nodes } else { [connection.nodes[1], connection.nodes[0]] };
        self.trace.bytes(bytes, || format!("{from}>{to} {}", described(bytes)));
        connection.landed(side, bytes.len());
        let mut end = connection.ends[1 - side].borrow_mut();
        if end.is_over {
            // The receiver is gone: the sender gets a reset.
            let content = Content::End { connection: connection.clone(), side: 1 - side };
            drop(end);
            return self.send(Packet { from: to, to: from, content });
        }
        end.input.extend_from_slice(bytes);
        end.wake();
    }

    /// The way from `node` to all others.
    #[must_use]
    pub fn dialler(self: &Rc<Self>, node: usize, urls: Rc<[String]>) -> Dialler {
        Dialler { network: self.clone(), node, urls }
    }

    /// The called node takes the call; its end of the connection.
    pub fn accept(self: &Rc<Self>, incoming: IncomingCall, ours: Hello) -> (Box<dyn Transport>, Hello) {
        let IncomingCall { from, to, hello, reply } = incoming;
        let number = self.connections.get();
        self.connections.set(number + 1);
        let connection = Rc::new(SimConnection { number, nodes: [from, to], ends: Default::default() });
        self.open.borrow_mut().push(Rc::downgrade(&connection));
        let end = |side| Box::new(StreamHalf { network: self.clone(), connection: connection.clone(), side });
        let answer = Ok(Dialled { transport: end(0), hello: ours, input: BytesMut::new() });
        self.send(Packet { from: to, to: from, content: Content::Reply { answer, reply } });
        (end(1), hello)
    }

    /// The called node takes no such call.
    pub fn refuse(&self, incoming: IncomingCall, error: ConnectError) {
        let IncomingCall { from, to, reply, .. } = incoming;
        let answer = Err(error);
        self.send(Packet { from: to, to: from, content: Content::Reply { answer, reply } });
    }
}

impl Packet {
    fn copy(&self) -> Option<Self> {
        let Content::Frame { connection, side, bytes } = &self.content else { return None };
        // Counted once more, because it lands once more.
        connection.ends[*side].borrow_mut().in_flight += bytes.len();
        let content = Content::Frame { connection: connection.clone(), side: *side, bytes: bytes.clone() };
        Some(Self { from: self.from, to: self.to, content })
    }

    /// The connection and the side whose order this keeps.
    fn arrival(&self) -> Option<(Rc<SimConnection>, usize)> {
        match &self.content {
            Content::Frame { connection, side, .. } | Content::End { connection, side } => {
                Some((connection.clone(), *side))
            }
            Content::Call { .. } | Content::Reply { .. } => None,
        }
    }
}

impl SimConnection {
    fn landed(&self, side: usize, bytes: usize) {
        let mut end = self.ends[side].borrow_mut();
        end.in_flight -= bytes;
        if end.in_flight < WINDOW_BYTES
            && let Some(writer) = end.writer.take()
        {
            writer.wake();
        }
    }
}

fn described(bytes: &Bytes) -> String {
    let (mut decoder, mut input) = (Decoder::new(1 << 20, 1 << 20), BytesMut::from(&**bytes));
    let frames: Vec<String> = std::iter::from_fn(|| decoder.decode(&mut input).ok().flatten())
        .map(|frame| format!("{:x} {:?}", frame.id, frame.message))
        .collect();
    if frames.is_empty() {
        return format!("part of a large frame, {} bytes", bytes.len());
    }
    let mut text = frames.join(" + ");
    text.truncate(text.char_indices().map(|(at, _)| at).nth(300).unwrap_or(text.len()));
    text
}

/// A call that has arrived.
pub struct IncomingCall {
    from: usize,
    to: usize,
    /// The caller's.
    pub hello: Hello,
    reply: oneshot::Sender<Result<Dialled, ConnectError>>,
}

/// One node's way to call the others.
pub struct Dialler {
    network: Rc<Network>,
    node: usize,
    urls: Rc<[String]>,
}

impl Dial for Dialler {
    fn dial<'a>(&'a self, url: &'a str, ours: &'a Hello) -> Dialling<'a> {
        Box::pin(async move {
            let to = self.urls.iter().position(|known| known == url).expect("a node of the cluster");
            let (reply, answer) = oneshot::channel();
            let content = Content::Call { hello: ours.clone(), reply };
            self.network.send(Packet { from: self.node, to, content });
            match answer.await {
                Ok(answer) => answer,
                // What was lost never arrives.
                Err(_) => std::future::pending().await,
            }
        })
    }
}

/// One end of a connection.
struct StreamHalf {
    network: Rc<Network>,
    connection: Rc<SimConnection>,
    side: usize,
}

impl StreamHalf {
    fn end(&self) -> std::cell::RefMut<'_, StreamEnd> {
        self.connection.ends[self.side].borrow_mut()
    }

    fn packet(&self, content: Content) -> Packet {
        Packet { from: self.connection.nodes[self.side], to: self.connection.nodes[1 - self.side], content }
    }
}

impl Transport for StreamHalf {
    fn try_write(&self, bytes: &[u8]) -> IoResult<usize> {
        let mut end = self.end();
        if end.is_over {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if end.in_flight >= WINDOW_BYTES {
            return Err(ErrorKind::WouldBlock.into());
        }
        end.output.extend_from_slice(bytes);
        while let Some(length) = end.output.first_chunk::<4>() {
            let length = HEADER_BYTES + usize::try_from(u32::from_be_bytes(*length)).expect("a frame's length fits");
            if end.output.len() < length {
                break;
            }
            let bytes = end.output.split_to(length).freeze();
            end.in_flight += length;
            drop(end);
            let content = Content::Frame { connection: self.connection.clone(), side: self.side, bytes };
            self.network.send(self.packet(content));
            end = self.end();
        }
        Ok(bytes.len())
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        let mut end = self.end();
        if end.is_over || end.in_flight < WINDOW_BYTES {
            return Poll::Ready(Ok(()));
        }
        end.writer = Some(context.waker().clone());
        Poll::Pending
    }

    fn poll_read(&mut self, context: &mut Context<'_>, input: &mut BytesMut) -> Poll<IoResult<usize>> {
        let mut end = self.end();
        if end.input.is_empty() && !end.is_over {
            end.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let room = (input.capacity() - input.len()).min(end.input.len());
        input.extend_from_slice(&end.input.split_to(room));
        Poll::Ready(Ok(room))
    }

    fn shutdown(&self) {
        let mut end = self.end();
        if std::mem::replace(&mut end.is_over, true) {
            return;
        }
        end.input.clear();
        end.wake();
        drop(end);
        let content = Content::End { connection: self.connection.clone(), side: self.side };
        self.network.send(self.packet(content));
    }
}

impl Drop for StreamHalf {
    fn drop(&mut self) {
        self.shutdown();
    }
}
