//! The admin listener: where an operator takes profiles. HTTP/1.1, one request per connection, on threads of its own.
//!
//! Only on the loopback interface, and only where it is configured: a profile costs the node time, and shows what it
//! is made of. Bounded: connections, the size and the time of a request, and all that a profile is bounded by. A client
//! that goes away, or closes its side, ends its profile.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::profiler::Profiler;
use super::sample::{FREQUENCY_MAX, Profile, ProfileRequest, Refusal, SECONDS_MAX, SampleKind};

/// Connections that are served at a time.
const CONNECTIONS_MAX: usize = 8;
const HEAD_BYTES_MAX: usize = 4096;
/// For a request to arrive, and for an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// For the last answers to clients that wait for a profile.
const FAREWELL: Duration = Duration::from_secs(3);
const DEFAULT_SECONDS: u32 = 30;
/// Not a round number: what happens every 10 ms would be seen always or never.
const DEFAULT_FREQUENCY: u32 = 99;
const PREFIX: &str = "/debug/profile/";

/// It, and the thread that accepts. Connections have threads of their own, which end by themselves.
pub(crate) struct AdminListener {
    shared: Arc<ListenerShared>,
    address: SocketAddr,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct ListenerShared {
    profiler: Profiler,
    connections: AtomicUsize,
    stopping: AtomicBool,
}

/// A status, headers of its own, and text.
#[derive(Debug, Default)]
struct AdminResponse {
    status: u16,
    reason: &'static str,
    headers: String,
    text: String,
}

impl AdminListener {
    /// Serves what connects to this listener.
    ///
    /// # Errors
    /// The system's, where it starts no thread.
    pub(crate) fn start(listener: TcpListener) -> io::Result<Self> {
        let shared = Arc::<ListenerShared>::default();
        let (accepting, address) = (shared.clone(), listener.local_addr()?);
        let thread =
            std::thread::Builder::new().name("admin".to_owned()).spawn(move || accept(&listener, &accepting))?;
        tracing::warn!(%address, "the admin listener is open: whoever can connect from this machine can take profiles");
        Ok(Self { shared, address, thread })
    }

    /// Takes no more connections, has profiles given up, and waits a little for their clients' answers.
    pub(crate) fn stop(self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        // Wakes the thread: without that it ends with the process.
        if TcpStream::connect_timeout(&self.address, PATIENCE).is_ok() && self.thread.join().is_err() {
            tracing::error!("the admin thread ended in a panic");
        }
        let end = Instant::now() + FAREWELL;
        while self.shared.connections.load(Ordering::Acquire) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<ListenerShared>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of descriptors, most likely: those that are open may close.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let slot = AdminSlot::take(shared);
        let serve = move || {
            if let Err(error) = serve(stream, slot.as_ref()) {
                tracing::debug!(%error, "admin connection lost");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("profile".to_owned()).spawn(serve) {
            tracing::warn!(%error, "cannot serve an admin connection");
        }
    }
}

/// One of the connections that are served.
struct AdminSlot(Arc<ListenerShared>);

impl AdminSlot {
    fn take(shared: &Arc<ListenerShared>) -> Option<Self> {
        let slot = Self(shared.clone());
        // Given back in any case.
        (shared.connections.fetch_add(1, Ordering::Relaxed) < CONNECTIONS_MAX).then_some(slot)
    }
}

impl Drop for AdminSlot {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Release);
    }
}

fn serve(mut stream: TcpStream, slot: Option<&AdminSlot>) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let answer = match slot {
        None => {
            AdminResponse::error(503, "Service Unavailable", format!("{CONNECTIONS_MAX} connections are being served"))
        }
        Some(slot) => match parse(&read_head(&mut stream)?) {
            Err(answer) => answer,
            Ok(request) => match profile(&stream, &slot.0, request)? {
                Ok(profile) => AdminResponse::profile(request, &profile),
                // The client seems gone: if it is not, an end without an answer is nothing untrue.
                Err(Refusal::Unwanted) if !slot.0.stopping.load(Ordering::Relaxed) => return Ok(()),
                Err(refusal) => AdminResponse::refusal(&refusal),
            },
        },
    };
    stream.write_all(answer.bytes().as_bytes())
}

/// Takes the profile, as long as the client is there.
fn profile(
    stream: &TcpStream,
    shared: &ListenerShared,
    request: ProfileRequest,
) -> io::Result<Result<Profile, Refusal>> {
    stream.set_nonblocking(true)?;
    let mut wanted = || {
        let gone = match stream.peek(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        !gone && !shared.stopping.load(Ordering::Relaxed)
    };
    let taken = shared.profiler.take(request, &mut wanted);
    stream.set_nonblocking(false)?;
    let kind = request.kind.name();
    match &taken {
        Ok(profile) => tracing::info!(kind, samples = profile.samples, "profile taken"),
        Err(refusal) => tracing::info!(kind, %refusal, "no profile"),
    }
    Ok(taken)
}

fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") && head.len() <= HEAD_BYTES_MAX {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(buffer.get(..read).unwrap_or_default());
    }
    Ok(head)
}

fn parse(head: &[u8]) -> Result<ProfileRequest, AdminResponse> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Request::new(&mut headers);
    let malformed =
        || AdminResponse::error(400, "Bad Request", "this is no HTTP/1.1 request, or a very long one".to_owned());
    if !parsed.parse(head).is_ok_and(|status| status.is_complete()) {
        return Err(malformed());
    }
    let target = parsed.path.ok_or_else(malformed)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let named = path.strip_prefix(PREFIX);
    let Some(kind) = SampleKind::ALL.into_iter().find(|kind| Some(kind.name()) == named) else {
        return Err(AdminResponse::error(
            404,
            "Not Found",
            format!("there are {PREFIX}cpu, {PREFIX}alloc and {PREFIX}lock"),
        ));
    };
    if parsed.method != Some("GET") {
        return Err(AdminResponse::error(405, "Method Not Allowed", "a profile is taken with GET".to_owned()));
    }
    let (mut seconds, mut frequency) = (DEFAULT_SECONDS, DEFAULT_FREQUENCY);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (set, max) = match name {
            "seconds" => (&mut seconds, SECONDS_MAX),
            "frequency" if kind == SampleKind::Cpu => (&mut frequency, FREQUENCY_MAX),
            _ => return Err(AdminResponse::error(400, "Bad Request", format!("unknown parameter {name:?}"))),
        };
        let number = value.parse::<u32>().ok().filter(|number| (1..=max).contains(number));
        *set = number.ok_or_else(|| {
            AdminResponse::error(400, "Bad Request", format!("{name} is a whole number from 1 to {max}, not {value:?}"))
        })?;
    }
    Ok(ProfileRequest { kind, time: Duration::from_secs(u64::from(seconds)), frequency })
}

impl AdminResponse {
    fn error(status: u16, reason: &'static str, text: String) -> Self {
        Self { status, reason, text: text + "\n", ..Self::default() }
    }

    fn refusal(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Busy => Self::error(409, "Conflict", refusal.to_string()),
            Refusal::Unwanted => Self::error(503, "Service Unavailable", "the node is stopping".to_owned()),
            Refusal::Impossible(_) => Self::error(500, "Internal Server Error", refusal.to_string()),
        }
    }

    fn profile(request: ProfileRequest, profile: &Profile) -> Self {
        let mut headers = String::new();
        let mut header = |name: &str, value: &dyn std::fmt::Display| {
            write!(headers, "Kvorum-Profile-{name}: {value}\r\n").expect("a string takes all text");
        };
        header("Kind", &request.kind.name());
        header("Unit", &request.kind.unit());
        header("Seconds", &format!("{:.3}", profile.time.as_secs_f64()));
        if request.kind == SampleKind::Cpu {
            header("Frequency", &request.frequency);
        }
        header("Samples", &profile.samples);
        header("Lost", &profile.lost);
        header("Truncated-Percent", &format!("{:.1}", percent(profile.truncated, profile.samples)));
        header("Note", &profile.note);
        let lines = profile.stacks.iter().map(|(stack, value)| format!("{stack} {value}\n"));
        Self { status: 200, reason: "OK", headers, text: lines.collect() }
    }

    fn bytes(&self) -> String {
        let Self { status, reason, headers, text } = self;
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n{headers}\r\n{text}",
            text.len()
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use crate::profile::listener::*;

    fn asked(target: &str) -> Result<ProfileRequest, u16> {
        parse(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).map_err(|answer| answer.status)
    }

    #[test]
    fn a_profile_is_asked_for_within_its_bounds() {
        let seconds = Duration::from_secs;
        let default = ProfileRequest { kind: SampleKind::Cpu, time: seconds(30), frequency: 99 };
        assert_eq!(asked("/debug/profile/cpu"), Ok(default));
        let longest = ProfileRequest { kind: SampleKind::Cpu, time: seconds(120), frequency: 999 };
        assert_eq!(asked("/debug/profile/cpu?seconds=120&frequency=999"), Ok(longest));
        let short = ProfileRequest { kind: SampleKind::Lock, time: seconds(1), frequency: 99 };
        assert_eq!(asked("/debug/profile/lock?seconds=1"), Ok(short));
        for bad in
            ["cpu?seconds=121", "cpu?seconds=0", "cpu?frequency=1000", "alloc?frequency=99", "lock?a", "cpu?seconds="]
        {
            assert_eq!(asked(&format!("/debug/profile/{bad}")), Err(400), "{bad}");
        }
        for unknown in ["/", "/debug/profile/", "/debug/profile/heap", "/v0/entity?id=a"] {
            assert_eq!(asked(unknown), Err(404), "{unknown}");
        }
        assert_eq!(parse(b"POST /debug/profile/cpu HTTP/1.1\r\n\r\n").unwrap_err().status, 405);
        assert_eq!(parse(b"hello\r\n\r\n").unwrap_err().status, 400);
        assert_eq!(parse(&[b'a'; HEAD_BYTES_MAX + 1]).unwrap_err().status, 400);
    }
}
