//! The closed loop: one thread, all connections, one request under way on each.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;

use crate::error::DriveError;
use crate::plan::{Plan, ProtocolName, Task};
use crate::processes::Usage;
use crate::protocol::{Ending, Protocol, grpc, http, resp};
use crate::report::{Report, RunCounts};

/// The longest sleep: how much longer than its time a run may take.
const TICK: Duration = Duration::from_millis(50);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// From when on a request is reported that had no answer when the time was over.
const STALL: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 64 << 10;
const EVENTS_MAX: usize = 512;

struct Wire {
    stream: TcpStream,
    protocol: Box<dyn Protocol>,
    input: Vec<u8>,
    output: Vec<u8>,
    /// When the request that is under way was sent.
    sent: Option<Instant>,
}

struct ClosedLoop<'a> {
    plan: &'a Plan,
    wires: Vec<Wire>,
    epoll: OwnedFd,
    events: Vec<Event>,
    scratch: Vec<u8>,
    value: Vec<u8>,
    /// Requests so far, and in a fill the next key.
    sent: u64,
    random: SplitMix,
    counts: RunCounts,
    /// Whether the warm-up is over.
    measured: bool,
}

/// Runs it. Blocks until its time is over, or in a fill until all is written.
///
/// # Errors
/// A connection that cannot be made, that ends, or whose answers are not its protocol's; a fill that is not completed.
pub(crate) fn run(plan: &Plan) -> Result<Report, DriveError> {
    let mut driver = ClosedLoop::new(plan)?;
    for id in 0..driver.wires.len() {
        driver.send(id)?;
    }
    if plan.task != Task::Fill {
        let end = Instant::now() + Duration::from_secs(plan.warmup_seconds);
        while Instant::now() < end {
            driver.step(end)?;
        }
    }
    driver.measured = true;
    let (begin, before) = (Instant::now(), Usage::now(&plan.processes));
    let end = begin + Duration::from_secs(plan.seconds.get());
    while Instant::now() < end && !driver.is_filled() {
        driver.step(end)?;
    }
    let spent = Usage::now(&plan.processes).since(&before);
    driver.report(begin.elapsed(), spent)
}

impl<'a> ClosedLoop<'a> {
    fn new(plan: &'a Plan) -> Result<Self, DriveError> {
        let epoll =
            epoll::create(CreateFlags::CLOEXEC).map_err(io::Error::from).map_err(DriveError::system("epoll"))?;
        let wires = (0..plan.connections.get()).map(|id| Wire::new(plan, &epoll, id)).collect::<Result<_, _>>()?;
        Ok(Self {
            plan,
            wires,
            epoll,
            events: Vec::with_capacity(EVENTS_MAX),
            scratch: vec![0; READ_BYTES],
            value: vec![0; plan.value_bytes],
            sent: 0,
            random: SplitMix(plan.seed),
            counts: RunCounts::new(),
            measured: false,
        })
    }

    fn is_filled(&self) -> bool {
        self.plan.task == Task::Fill && self.counts.successes() + self.counts.refused >= self.plan.keys.get()
    }

    fn send(&mut self, id: usize) -> Result<(), DriveError> {
        let keys = self.plan.keys.get();
        let key = match self.plan.task {
            Task::Fill if self.sent >= keys => return Ok(()),
            Task::Fill => self.sent,
            Task::Put | Task::Get => self.random.below(keys),
        };
        self.sent += 1;
        if self.plan.task.writes() {
            self.random.fill(&mut self.value);
        }
        let wire = self.wires.get_mut(id).expect("connections are made once and never dropped");
        wire.protocol.request(&mut wire.output, &key_name(key), &self.value)?;
        wire.sent = Some(Instant::now());
        wire.flush()
    }

    /// Sleeps until something comes, no longer than `end`, and takes what came.
    fn step(&mut self, end: Instant) -> Result<(), DriveError> {
        let timeout = end.saturating_duration_since(Instant::now()).min(TICK);
        let timeout = Timespec::try_from(timeout).expect("at most a tick");
        let mut events = std::mem::take(&mut self.events);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(DriveError::system("epoll")(error.into())),
        }
        for event in events.drain(..) {
            self.read(usize::try_from(event.data.u64()).expect("the number of a connection"))?;
        }
        self.events = events;
        Ok(())
    }

    /// Reads everything, because events come for changes only.
    fn read(&mut self, id: usize) -> Result<(), DriveError> {
        loop {
            let wire = self.wires.get_mut(id).expect("events carry the number of a connection");
            wire.flush()?;
            match wire.stream.read(&mut self.scratch) {
                Ok(0) => return Err(DriveError::Closed),
                Ok(bytes) => {
                    wire.input.extend_from_slice(self.scratch.get(..bytes).unwrap_or_default());
                    self.take(id)?;
                    if bytes < READ_BYTES {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(DriveError::system("a connection")(error)),
            }
        }
    }

    /// Takes the answer if it is whole, and sends the next request then.
    fn take(&mut self, id: usize) -> Result<(), DriveError> {
        loop {
            let wire = self.wires.get_mut(id).expect("the caller has read from it");
            let (taken, ending) = wire.protocol.take(&wire.input, &mut wire.output)?;
            wire.input.drain(..taken);
            let Some(ending) = ending else { return wire.flush() };
            let sent = wire.sent.take().ok_or(DriveError::Malformed("an answer without a request"))?;
            match ending {
                Ending::Done if self.measured => self.counts.succeed(sent.elapsed()),
                Ending::Refused if self.measured => self.counts.refused += 1,
                Ending::Done | Ending::Refused => {}
            }
            self.send(id)?;
        }
    }

    fn report(self, time: Duration, spent: Usage) -> Result<Report, DriveError> {
        let missing = self.plan.keys.get().saturating_sub(self.counts.successes() + self.counts.refused);
        if self.plan.task == Task::Fill && (missing > 0 || self.counts.refused > 0) {
            return Err(DriveError::Fill { refused: self.counts.refused, missing });
        }
        let stalled = self.wires.iter().filter(|wire| wire.sent.is_some_and(|sent| sent.elapsed() > STALL)).count();
        Ok(self.counts.report(time, spent, u64::try_from(stalled).expect("connections are few")))
    }
}

impl Wire {
    fn new(plan: &Plan, epoll: &OwnedFd, id: usize) -> Result<Self, DriveError> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&plan.address, CONNECT_MAX)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            let id = u64::try_from(id).expect("connections are few");
            epoll::add(epoll, &stream, EventData::new_u64(id), events)?;
            Ok(stream)
        };
        let stream = connect().map_err(DriveError::system("connecting"))?;
        let mut protocol = of_connection(plan);
        let mut output = Vec::new();
        protocol.greet(&mut output);
        Ok(Self { stream, protocol, input: Vec::new(), output, sent: None })
    }

    /// Writes what can be written. The rest follows when the system says that there is room.
    fn flush(&mut self) -> Result<(), DriveError> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return Err(DriveError::Closed),
                Ok(bytes) => drop(self.output.drain(..bytes)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(DriveError::system("a connection")(error)),
            }
        }
        Ok(())
    }
}

/// A key's name: 16 bytes.
fn key_name(key: u64) -> [u8; 16] {
    let mut name = *b"key-000000000000";
    let mut left = key;
    for place in name.iter_mut().skip(4).rev() {
        *place = b'0' + u8::try_from(left % 10).expect("a digit");
        left /= 10;
    }
    name
}

/// Chance from a seed (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Below `bound`, evenly enough.
    fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(bound);
        u64::try_from(product >> 64).expect("the upper half of 128 bits")
    }

    /// Bytes that no compression shortens.
    fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.iter_mut().zip(self.next().to_le_bytes()).for_each(|(place, byte)| *place = byte);
        }
    }
}

/// The protocol of a new connection.
fn of_connection(plan: &Plan) -> Box<dyn Protocol> {
    let authority = plan.address.to_string();
    match plan.protocol {
        ProtocolName::Http => Box::new(http::Http::new(&authority, plan.task)),
        ProtocolName::Grpc => Box::new(grpc::Grpc::new(&authority, plan.task)),
        ProtocolName::Resp => Box::new(resp::Resp::new(plan.task)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::{SplitMix, key_name, run};
    use crate::plan::{Plan, ProtocolName, Task};

    /// Answers what a `SET` and a `WAIT` are answered, for each `W` that comes; after 5,000 no more.
    fn answer(mut stream: TcpStream) {
        let mut bytes = [0; 4096];
        let mut left = 5000;
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            let whole = bytes[..read].iter().filter(|byte| **byte == b'W').count().min(left);
            left -= whole;
            if stream.write_all(&b"+OK\r\n:1\r\n".repeat(whole)).is_err() {
                return;
            }
        }
    }

    fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || answer(stream.unwrap()));
            }
        });
        address
    }

    /// Values are empty, so that the server counts no `W` of theirs.
    fn plan(address: SocketAddr, task: Task, keys: u64) -> Plan {
        Plan {
            protocol: ProtocolName::Resp,
            address,
            task,
            connections: 2.try_into().unwrap(),
            keys: keys.try_into().unwrap(),
            value_bytes: 0,
            warmup_seconds: 0,
            seconds: 1.try_into().unwrap(),
            seed: 1,
            processes: vec![std::process::id()],
        }
    }

    #[test]
    fn a_fill_writes_each_key_once() {
        let mut whole = plan(server(), Task::Fill, 1000);
        whole.seconds = 30.try_into().unwrap();
        let report = run(&whole).unwrap();
        assert_eq!((report.requests, report.refused, report.stalled), (1000, 0, 0), "{report:?}");
    }

    #[test]
    fn a_fill_that_is_not_answered_ends_with_its_time() {
        assert!(run(&plan(server(), Task::Fill, 1_000_000)).is_err());
    }

    #[test]
    fn a_closed_loop_sends_as_fast_as_answers_come() {
        let report = run(&plan(server(), Task::Put, 1000)).unwrap();
        assert!(report.requests > 100 && report.refused == 0 && report.rate > 0.0, "{report:?}");
    }

    #[test]
    fn a_server_that_closes_its_connections_ends_the_run() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || listener.incoming().for_each(drop));
        assert!(run(&plan(address, Task::Put, 1000)).is_err());
    }

    #[test]
    fn names_are_as_long_and_differ() {
        assert_eq!((&key_name(0), &key_name(1_234_567)), (b"key-000000000000", b"key-000001234567"));
    }

    #[test]
    fn chance_fills_all_of_a_value_and_stays_below_its_bound() {
        let mut random = SplitMix(1);
        let mut value = [0; 101];
        random.fill(&mut value);
        assert!(value.chunks(8).take(12).all(|piece| piece != [0; 8]));
        assert!((0..1000).all(|_| random.below(3) < 3));
    }
}
