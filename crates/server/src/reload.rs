//! Reads the file of keys anew when it has changed, and at SIGHUP. A bad file changes nothing.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use kvorum_auth::table::AuthTable;
use kvorum_http::AuthState;

use crate::audit::Audit;
use crate::secrets::read_auth_file;

/// Between two looks at the file.
const LOOK: Duration = Duration::from_secs(2);

/// What a reload is about.
pub(crate) struct ReloadParts {
    /// The file of keys and what it was read into, if there is one.
    pub(crate) auth: Option<(PathBuf, Arc<AuthState>)>,
    /// As that file was before it was read: a change since then is found.
    pub(crate) seen: FileState,
    pub(crate) audit: Option<Arc<Audit>>,
}

/// The thread that looks.
pub(crate) struct Reloader {
    asked: SyncSender<()>,
    thread: JoinHandle<()>,
}

/// What a file looks like from outside. Another one has another place on the disk, or another time of its last change; so
/// has one that has another mode or owner, for which it may have been refused.
pub(crate) type FileState = Option<(u64, u64, i64, i64)>;

impl Reloader {
    /// Starts looking.
    ///
    /// # Errors
    /// The system's, where it starts no thread.
    pub(crate) fn start(parts: ReloadParts) -> std::io::Result<Self> {
        let (asked, asks) = sync_channel(1);
        let thread = std::thread::Builder::new().name("reload".to_owned());
        let thread = thread.spawn(move || run(&parts, &asks))?;
        Ok(Self { asked, thread })
    }

    /// Something asks for it. Does not block.
    pub(crate) fn asker(&self) -> SyncSender<()> {
        self.asked.clone()
    }

    /// Ends the thread. Every asker has to be gone.
    pub(crate) fn stop(self) {
        drop(self.asked);
        if self.thread.join().is_err() {
            tracing::error!("the thread that reads keys anew ended in a panic");
        }
    }
}

fn run(parts: &ReloadParts, asks: &Receiver<()>) {
    let mut seen = parts.seen;
    loop {
        let is_asked = match asks.recv_timeout(LOOK) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if is_asked && let Some(audit) = &parts.audit {
            audit.reopen();
        }
        if let Some((path, auth)) = &parts.auth {
            let now = state(path);
            if is_asked || now != seen {
                seen = now;
                reload(path, auth, parts.audit.as_deref());
            }
        }
    }
}

/// How the file looks now.
pub(crate) fn state(path: &Path) -> FileState {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.ctime(), metadata.ctime_nsec()))
}

fn reload(path: &Path, auth: &AuthState, audit: Option<&Audit>) {
    let outcome = match read_auth_file(path) {
        Ok(file) => {
            let before = auth.table();
            let table = AuthTable::new(file, Some(&before));
            let changes = before.changes(&table).to_string();
            tracing::info!(file = %path.display(), changes, "keys were read anew");
            auth.replace(table);
            changes
        }
        Err(error) => {
            auth.failed_reloads.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%error, "the file of keys is not taken: the keys that were read before stay in force");
            format!("not taken: {error}")
        }
    };
    if let Some(audit) = audit {
        audit.note_reload(&outcome);
    }
}
