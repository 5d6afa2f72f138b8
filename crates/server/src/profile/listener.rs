//! The admin listener: where an operator takes profiles. HTTP/1.1, one request per connection, on threads of its own.
//! What asks for no profile is the console's, if there is one ([`AdminConsole`]).
//!
//! Only on the loopback interface, and only where it is configured: a profile costs the node time, and shows what it
//! is made of. Bounded: connections, the size and the time of a request, and all that a profile is bounded by. A client
//! that goes away, or closes its side, ends its profile.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kvorum_auth::api_key::ApiKey;
use kvorum_auth::rights::AdminRight;
use kvorum_auth::table::AuthTable;
use kvorum_base::clock::TimeSource;
use kvorum_http::{AuditLog, AuthState, BrowserRules, OriginHeaders, OriginRefusal};

use super::console::{AdminConsole, PREFIX};
use super::profiler::Profiler;
use super::sample::{FREQUENCY_MAX, Profile, ProfileRequest, Refusal, SECONDS_MAX, SampleKind};
use crate::audit::Audit;

/// Connections that are served at a time.
const CONNECTIONS_MAX: usize = 8;
const HEAD_BYTES_MAX: usize = 4096;
/// For a request to arrive, and for an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the audit says of a client that has gone before it had its profile.
const GONE: u16 = 499;
/// For the last answers to clients that wait for a profile.
const FAREWELL: Duration = Duration::from_secs(3);
const DEFAULT_SECONDS: u32 = 30;
/// Not a round number: what happens every 10 ms would be seen always or never.
const DEFAULT_FREQUENCY: u32 = 99;

/// It, and the thread that accepts. Connections have threads of their own, which end by themselves.
pub(crate) struct AdminListener {
    shared: Arc<ListenerShared>,
    address: SocketAddr,
    thread: JoinHandle<()>,
}

struct ListenerShared {
    profiler: Profiler,
    rules: AdminRules,
    console: Option<AdminConsole>,
    connections: AtomicUsize,
    stopping: AtomicBool,
}

/// Who may take profiles.
pub(crate) struct AdminRules {
    /// The listener's names, and the pages that may use it.
    pub(crate) browsers: BrowserRules,
    /// The keys of clients, one of which needs the right `profile`; none: every connection may.
    pub(crate) auth: Option<Arc<AuthState>>,
    /// Where each request is noted: a profile is an order of an operator's. The listener's threads do not keep it open:
    /// a client that stays would keep the node from stopping.
    pub(crate) audit: Weak<Audit>,
    /// By which keys end.
    pub(crate) time: Arc<dyn TimeSource>,
}

/// What the audit says of a request, as far as it is known.
#[derive(Debug, Default)]
struct AdminCaller {
    action: String,
    principal: String,
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
    pub(crate) fn start(listener: TcpListener, rules: AdminRules, console: Option<AdminConsole>) -> io::Result<Self> {
        let shared = Arc::new(ListenerShared {
            profiler: Profiler::default(),
            rules,
            console,
            connections: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        });
        let (accepting, address) = (shared.clone(), listener.local_addr()?);
        let thread =
            std::thread::Builder::new().name("admin".to_owned()).spawn(move || accept(&listener, &accepting))?;
        tracing::info!(%address, "the admin listener is open: programs of this machine can take profiles");
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
    if let Some(console) = slot.and_then(|slot| slot.0.console.as_ref())
        && console.is_meant(&stream)?
    {
        return console.take_over(stream);
    }
    let address = stream.peer_addr()?.ip();
    let mut caller = AdminCaller::default();
    let note = |caller: &AdminCaller, status| {
        if let Some(audit) = slot.and_then(|slot| slot.0.rules.audit.upgrade()) {
            audit.note_profile(address, &caller.principal, &caller.action, status);
        }
    };
    let answer = match slot {
        None => {
            AdminResponse::error(503, "Service Unavailable", format!("{CONNECTIONS_MAX} connections are being served"))
        }
        Some(slot) => match parse(&read_head(&mut stream)?, &slot.0.rules, &mut caller) {
            Err(answer) => answer,
            Ok(_) if slot.0.rules.audit.upgrade().is_some_and(|audit| audit.is_full()) => {
                AdminResponse::error(503, "Service Unavailable", "the audit has no room for this request".to_owned())
            }
            Ok(request) => match profile(&stream, &slot.0, request).inspect_err(|_| note(&caller, GONE))? {
                Ok(profile) => AdminResponse::profile(request, &profile),
                // The client seems gone: if it is not, an end without an answer is nothing untrue.
                Err(Refusal::Unwanted) if !slot.0.stopping.load(Ordering::Relaxed) => {
                    note(&caller, GONE);
                    return Ok(());
                }
                Err(refusal) => AdminResponse::refusal(&refusal),
            },
        },
    };
    note(&caller, answer.status);
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

fn parse(head: &[u8], rules: &AdminRules, caller: &mut AdminCaller) -> Result<ProfileRequest, AdminResponse> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Request::new(&mut headers);
    let malformed =
        || AdminResponse::error(400, "Bad Request", "this is no HTTP/1.1 request, or a very long one".to_owned());
    if !parsed.parse(head).is_ok_and(|status| status.is_complete()) {
        return Err(malformed());
    }
    let target = parsed.path.ok_or_else(malformed)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    caller.action = format!("{} {path}", parsed.method.unwrap_or_default());
    let header = |name: &str| {
        let header = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        header.map(|header| header.value)
    };
    let origin = OriginHeaders { host: header("host"), origin: header("origin"), site: header("sec-fetch-site") };
    rules.browsers.judge(origin).map_err(|refusal| match refusal {
        OriginRefusal::Foreign => AdminResponse::error(403, "Forbidden", refusal.to_string()),
        OriginRefusal::Misdirected => AdminResponse::error(421, "Misdirected Request", refusal.to_string()),
    })?;
    if let Some(auth) = &rules.auth {
        authorize(header("authorization"), &auth.table(), &*rules.time, caller)?;
    }
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

/// Whether the key of a header `Authorization` may take profiles.
fn authorize(
    header: Option<&[u8]>,
    table: &AuthTable,
    time: &dyn TimeSource,
    caller: &mut AdminCaller,
) -> Result<(), AdminResponse> {
    let bearer = header.and_then(|header| header.split_at_checked("Bearer ".len()));
    let key = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer ")).map(|(_, key)| key.trim_ascii());
    let known = match key.map(ApiKey::parse) {
        Some(Ok(key)) => table.find(&key, || time.wall_ms()).map_err(|refusal| refusal.to_string()),
        Some(Err(error)) => Err(format!("the key in the header `Authorization` is malformed: {error}")),
        None => Err("a key belongs in the header `Authorization: Bearer kvk_…`".to_owned()),
    };
    let known = known.map_err(|why| AdminResponse {
        headers: "WWW-Authenticate: Bearer realm=\"kvorum\"\r\n".to_owned(),
        ..AdminResponse::error(401, "Unauthorized", why)
    })?;
    known.principal.name.clone_into(&mut caller.principal);
    if known.principal.role.administers(AdminRight::Profile) {
        return Ok(());
    }
    Err(AdminResponse::error(403, "Forbidden", "the key's role does not have the right `profile`".to_owned()))
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
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n{headers}\r\n{text}",
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
    use kvorum_auth::api_key::KeyId;
    use kvorum_auth::file::parse_auth_file;
    use kvorum_http::MetricsAccess;

    use crate::profile::listener::*;

    fn rules() -> AdminRules {
        AdminRules {
            browsers: BrowserRules { own: "a:1".to_owned(), ..BrowserRules::default() },
            auth: None,
            audit: Weak::new(),
            time: Arc::new(kvorum_base::clock::SystemTime),
        }
    }

    fn of(head: &str) -> Result<ProfileRequest, u16> {
        parse(head.as_bytes(), &rules(), &mut AdminCaller::default()).map_err(|answer| answer.status)
    }

    fn asked(target: &str) -> Result<ProfileRequest, u16> {
        of(&format!("GET {target} HTTP/1.1\r\nHost: a:1\r\n\r\n"))
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
        assert_eq!(of("POST /debug/profile/cpu HTTP/1.1\r\n\r\n"), Err(405));
        assert_eq!(of("hello\r\n\r\n"), Err(400));
        assert_eq!(of(&"a".repeat(HEAD_BYTES_MAX + 1)), Err(400));
        for (header, status) in [("Host: evil.example", 421), ("Host: a:1\r\nOrigin: http://evil.example", 403)] {
            assert_eq!(of(&format!("GET /debug/profile/cpu HTTP/1.1\r\n{header}\r\n\r\n")), Err(status));
        }
    }

    #[test]
    fn where_there_are_keys_one_with_the_right_is_needed() {
        let key = |id: u8| ApiKey::new(KeyId::new([id; 6]), [id; 32]);
        let entry = |id: u8, role: &str| {
            let (key_id, sha256) = (key(id).id(), key(id).digest());
            format!("[[key]]\nid = \"{key_id}\"\nname = \"{role}\"\nsha256 = \"{sha256}\"\nrole = \"{role}\"\n")
        };
        let roles = "[role.operator]\nadmin = [\"profile\"]\n[role.other]\nadmin = [\"status\"]\n";
        let file = parse_auth_file(&format!("{roles}{}{}", entry(1, "operator"), entry(2, "other"))).unwrap();
        let auth = AuthState::new(AuthTable::new(file, None), MetricsAccess::Granted);
        let rules = AdminRules { auth: Some(auth), ..rules() };
        let status = |authorization: &str| {
            let head = format!("GET /debug/profile/cpu HTTP/1.1\r\nHost: a:1\r\n{authorization}\r\n");
            parse(head.as_bytes(), &rules, &mut AdminCaller::default()).map(drop).map_err(|answer| answer.status)
        };
        assert_eq!(status(&format!("Authorization: Bearer {}\r\n", key(1).text())), Ok(()));
        assert_eq!(status(&format!("Authorization: Bearer {}\r\n", key(2).text())), Err(403));
        for none in ["", "Authorization: x\r\n", "Authorization: Bearer kvk_\r\n"] {
            assert_eq!(status(none), Err(401), "{none}");
        }
        assert_eq!(status(&format!("Authorization: Bearer {}\r\n", key(3).text())), Err(401));
    }
}
