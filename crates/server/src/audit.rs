//! The audit: a file of lines that follow each other, written by a thread of its own.
//!
//! What waits is bounded. A line for which there is no room is left out and counted, or with `audit.strict` its request is
//! refused before it has an effect.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use kvorum_auth::audit::{AUDIT_LINE_BYTES_MAX, AuditChain, AuditEvent, timestamp};
use kvorum_auth::hash::{MacKey, hex};
use kvorum_config::{AuditSection, AuditedData};
use kvorum_http::{AuditLog, AuditedKind, AuditedRequest};

use crate::secrets::{SecretError, hide_memory, read_audit_secret};

/// Lines that wait to be written.
const QUEUE_MAX: usize = 8192;
/// Longest text of a member: a line stays short whatever was sent.
const TEXT_CHARS_MAX: usize = 256;

enum AuditWork {
    Event(AuditEvent),
    Reopen,
}

/// The way to the thread that writes.
pub(crate) struct Audit {
    queue: SyncSender<AuditWork>,
    waiting: Arc<AtomicUsize>,
    data: AuditedData,
    is_strict: bool,
    secret: Option<MacKey>,
    node: String,
    wall_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    next_id: AtomicU64,
    /// Lines that were written.
    pub(crate) written: Arc<AtomicU64>,
    /// Lines that had no room.
    pub(crate) left_out: AtomicU64,
    /// Writes that failed.
    pub(crate) failed: Arc<AtomicU64>,
}

/// The thread that writes, to be joined when all handles to the audit are gone.
pub(crate) type AuditThread = JoinHandle<()>;

/// Opens the audit that the settings name, of the node with this URL. `seed` is different for each start.
///
/// # Errors
/// Where a file cannot be used.
pub(crate) fn start(
    settings: &AuditSection,
    node: &str,
    seed: u64,
    wall_ms: Box<dyn Fn() -> u64 + Send + Sync>,
) -> Result<Option<(Arc<Audit>, AuditThread)>, SecretError> {
    let Some(path) = settings.file.clone() else { return Ok(None) };
    let secret = settings.secret_file.as_deref().map(read_audit_secret).transpose()?;
    if secret.is_some() {
        hide_memory();
    }
    let unusable = |error: io::Error| SecretError::Audit { path: path.clone(), error };
    let file = AuditFile::open(&path, None).map_err(unusable)?;
    let (queue, work) = sync_channel(QUEUE_MAX);
    let (waiting, written, failed) =
        (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let counts = (waiting.clone(), written.clone(), failed.clone());
    let thread = std::thread::Builder::new().name("audit".to_owned());
    let thread = thread.spawn(move || write(file, &work, &counts.0, &counts.1, &counts.2)).map_err(unusable)?;
    let audit = Audit {
        queue,
        waiting,
        data: settings.data,
        is_strict: settings.is_strict,
        secret,
        node: node.to_owned(),
        wall_ms,
        next_id: AtomicU64::new(seed),
        written,
        left_out: AtomicU64::new(0),
        failed,
    };
    Ok(Some((Arc::new(audit), thread)))
}

impl Audit {
    /// Has the file opened anew, which may have been moved away.
    pub(crate) fn reopen(&self) {
        // Where there is no room the next signal will do.
        let _ = self.queue.try_send(AuditWork::Reopen);
    }

    /// Keys were read anew, or not.
    pub(crate) fn note_reload(&self, outcome: &str) {
        self.send(self.event("reload", outcome));
    }

    /// A caller was taken for a peer and has not shown that it has the cluster's secret.
    pub(crate) fn note_unproven(&self, address: IpAddr) {
        self.send(AuditEvent { address: address.to_string(), ..self.event("GET /_peer", "no proof of the secret") });
    }

    /// A profile was asked for, with this status as the answer.
    pub(crate) fn note_profile(&self, address: IpAddr, principal: &str, action: &str, status: u16) {
        let (principal, address) = (principal.to_owned(), address.to_string());
        self.send(AuditEvent { principal, address, ..self.event(action, &status.to_string()) });
    }

    fn event(&self, action: &str, outcome: &str) -> AuditEvent {
        let short = |text: &str| text.chars().take(TEXT_CHARS_MAX).collect::<String>();
        AuditEvent {
            time: timestamp((self.wall_ms)()).unwrap_or_default(),
            node: self.node.clone(),
            request_id: format!("{:016x}", self.next_id.fetch_add(1, Ordering::Relaxed)),
            principal: String::new(),
            address: String::new(),
            action: short(action),
            outcome: short(outcome),
            key: String::new(),
        }
    }

    fn send(&self, event: AuditEvent) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if self.queue.try_send(AuditWork::Event(event)).is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_wanted(&self, kind: AuditedKind, status: u16) -> bool {
        let is_refused = matches!(status, 401 | 403 | 421 | 429);
        match kind {
            AuditedKind::Order => true,
            AuditedKind::Peer => status >= 400,
            AuditedKind::Other => is_refused,
            AuditedKind::Write | AuditedKind::Read => match self.data {
                AuditedData::None => false,
                AuditedData::Denied => is_refused,
                AuditedData::Writes => is_refused || kind == AuditedKind::Write,
                AuditedData::All => true,
            },
        }
    }
}

impl AuditLog for Audit {
    fn is_full(&self) -> bool {
        self.is_strict && self.waiting.load(Ordering::Relaxed) >= QUEUE_MAX
    }

    fn note(&self, request: &AuditedRequest<'_>) {
        if !self.is_wanted(request.kind, request.status) {
            return;
        }
        let action = format!("{} {}", request.method, request.path);
        let key = self.secret.as_ref().zip(request.key).map(|(secret, key)| hex(&secret.tag(&[key])));
        self.send(AuditEvent {
            principal: request.principal.unwrap_or_default().to_owned(),
            address: request.address.to_string(),
            key: key.unwrap_or_default(),
            ..self.event(&action, &request.status.to_string())
        });
    }
}

/// The audit as each shard has it.
pub(crate) struct ShardAudit(pub(crate) Arc<Audit>);

impl AuditLog for ShardAudit {
    fn is_full(&self) -> bool {
        self.0.is_full()
    }

    fn note(&self, request: &AuditedRequest<'_>) {
        self.0.note(request);
    }
}

/// The file, and the line that the next one follows.
struct AuditFile {
    path: PathBuf,
    file: File,
    chain: AuditChain,
}

impl AuditFile {
    /// Opens or creates the file. A new one goes on where `chain` ended; without that, an existing one where it ends.
    fn open(path: &Path, chain: Option<AuditChain>) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let metadata = file.metadata()?;
        if metadata.mode() & 0o077 != 0 {
            let text = "others than its owner may read or change it: `chmod 600` it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let last = last_line(&mut file)?;
        let chain = match (last, chain) {
            (None, Some(chain)) => chain,
            (last, _) => AuditChain::after(last.as_deref()),
        };
        Ok(Self { path: path.to_owned(), file, chain })
    }

    fn write(&mut self, event: &AuditEvent) -> io::Result<()> {
        let mut next = self.chain;
        let line = next.line(event) + "\n";
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            // A part of it may stand there, which is cut off as after a kill: the next line follows a whole one.
            let _ = last_line(&mut self.file);
            return Err(error);
        }
        self.chain = next;
        Ok(())
    }
}

/// The last whole line, without its end. What a killed process left behind it is cut off: it was never whole.
fn last_line(file: &mut File) -> io::Result<Option<Vec<u8>>> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(2 * AUDIT_LINE_BYTES_MAX as u64);
    file.seek(SeekFrom::Start(from))?;
    let (mut lines, mut last, mut end) = (BufReader::new(&*file), None, from);
    loop {
        let mut line = Vec::new();
        let read = lines.read_until(b'\n', &mut line)? as u64;
        if line.pop_if(|last| *last == b'\n').is_none() {
            break;
        }
        end += read;
        last = Some(line);
    }
    if end < length {
        file.set_len(end)?;
    }
    Ok(last)
}

fn write(
    mut file: AuditFile,
    work: &Receiver<AuditWork>,
    waiting: &AtomicUsize,
    written: &AtomicU64,
    failed: &AtomicU64,
) {
    let mut is_failing = false;
    for work in work {
        let done = match work {
            AuditWork::Event(event) => {
                let done = file.write(&event);
                waiting.fetch_sub(1, Ordering::Relaxed);
                done.map(|()| _ = written.fetch_add(1, Ordering::Relaxed))
            }
            AuditWork::Reopen => AuditFile::open(&file.path, Some(file.chain)).map(|opened| file = opened),
        };
        if let Err(error) = &done {
            failed.fetch_add(1, Ordering::Relaxed);
            if !is_failing {
                tracing::error!(%error, file = %file.path.display(), "the audit cannot be written");
            }
        }
        is_failing = done.is_err();
    }
}

#[cfg(test)]
mod tests {
    use kvorum_auth::audit::verify_audit;

    use super::*;

    fn settings(path: &Path, data: AuditedData) -> AuditSection {
        AuditSection { file: Some(path.to_owned()), data, ..AuditSection::default() }
    }

    fn audit(path: &Path, data: AuditedData) -> (Arc<Audit>, AuditThread) {
        start(&settings(path, data), "http://a:1", 7, Box::new(|| 0)).unwrap().unwrap()
    }

    fn request(kind: AuditedKind, status: u16) -> AuditedRequest<'static> {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        AuditedRequest { method: "PUT", path: "/v0/entity", status, principal: None, address, key: Some(b"k"), kind }
    }

    #[test]
    fn a_file_goes_on_after_a_restart_a_rotation_and_half_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("audit"), directory.path().join("audit.1"));
        for round in 0..3 {
            let (audit, thread) = audit(&path, AuditedData::Denied);
            audit.note_reload("one");
            if round == 1 {
                // Written before the file is moved: the queue keeps its order.
                while audit.written.load(Ordering::Relaxed) < 1 {
                    std::thread::yield_now();
                }
                std::fs::rename(&path, &moved).unwrap();
                audit.reopen();
            }
            audit.note_reload("two");
            drop(audit);
            thread.join().unwrap();
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(b"{\"time\": half a line").unwrap();
        }
        // Once more, so that the last half line is cut off.
        drop(audit(&path, AuditedData::Denied));
        let (count, chain) = verify_audit(File::open(&moved).map(BufReader::new).unwrap(), None).unwrap();
        let rest = verify_audit(File::open(&path).map(BufReader::new).unwrap(), chain).unwrap().0;
        assert_eq!((count, rest), (3, 3));
    }

    #[test]
    fn what_is_written_is_what_the_settings_want() {
        use AuditedKind::{Order, Other, Peer, Read, Write};
        let directory = tempfile::tempdir().unwrap();
        let wanted = |data, kind, status| {
            let (audit, _) = audit(&directory.path().join("audit"), data);
            audit.is_wanted(kind, status)
        };
        for data in [AuditedData::None, AuditedData::Denied, AuditedData::Writes, AuditedData::All] {
            assert!(wanted(data, Order, 202) && wanted(data, Peer, 409) && wanted(data, Other, 401));
            assert!(!wanted(data, Other, 200) && !wanted(data, Peer, 101));
            assert_eq!(wanted(data, Read, 403), data != AuditedData::None);
            assert_eq!(wanted(data, Write, 201), [AuditedData::Writes, AuditedData::All].contains(&data));
            assert_eq!(wanted(data, Read, 200), data == AuditedData::All);
        }
    }

    #[test]
    fn a_full_queue_counts_and_is_seen_where_it_has_to_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit");
        let settings = AuditSection { is_strict: true, ..settings(&path, AuditedData::All) };
        let (audit, thread) = start(&settings, "http://a:1", 7, Box::new(|| 0)).unwrap().unwrap();
        // As if nothing were written.
        audit.waiting.fetch_add(QUEUE_MAX, Ordering::Relaxed);
        assert!(audit.is_full());
        audit.waiting.fetch_sub(QUEUE_MAX, Ordering::Relaxed);
        assert!(!audit.is_full());
        audit.note(&request(AuditedKind::Write, 201));
        drop(audit);
        thread.join().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"outcome\":\"201\"") && !text.contains("\"key\""), "{text}");
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let refused = start(&settings(&path, AuditedData::All), "http://a:1", 7, Box::new(|| 0)).err().unwrap();
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
    }
}
