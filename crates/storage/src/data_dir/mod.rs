//! The data directory: whose it is, and what must be known of the past before the store is used.
//!
//! ```text
//! LOCK        flock(2): one process at a time
//! FORMAT      the version of this layout
//! IDENTITY    ids of the list that the cluster was first started with, and of this directory
//! LAYOUT      the newest layout, and this node's part in the decision of the next: [`DataDir::acceptor`]
//! PEERS       what is remembered of each peer: [`PeerNote`]
//! RUNS        where each run began: [`Runs`]
//! REBUILT     what had been lost before this sequence is back: [`DataDir::rebuilt`]
//! SYNCED      the sync marker: how far the log was durable
//! RUNNING     with `durability = "os"`: the boot of the machine on which the node ran last, until it has
//!             stopped with everything on the disk
//! REBUILDING  present while this node's answers count for nothing, with the reason
//! store/      RocksDB
//! freed/      second names of its files, until their space is freed: [`Reaper`](kvorum_engine_rocksdb::reaper::Reaper)
//! backup/     the last backup taken, until it is moved elsewhere
//! ```
//!
//! Promises: a second process, a foreign directory, a newer format and another cluster are refused before
//! anything is changed; what [`DataDir::remember`] and [`DataDir::set_rebuilding`] returned from is durable. It does
//! *not* distinguish a directory that was restored from a copy from the original: its peers do, by what they remember
//! of the [`Run`] before.
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use kvorum_base::sync::{Mutex, MutexGuard};
use kvorum_core::chain;
use kvorum_core::chain::acceptor::Acceptor;
use kvorum_core::layout::Layout;
use kvorum_core::node::{DirectoryId, NodeId};
use kvorum_core::version::Incarnation;
use rustix::fs::{FlockOperation, flock};

use crate::store::Durability;

pub mod checksum;
mod error;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod marker;
mod peer_note;
mod run;
mod runs;

use checksum::{with_checksum, with_hash, without_checksum, without_hash};
pub use error::{ClusterId, DataDirError};
use files::{io_error, read, read_bytes, write};
pub use run::{Run, RunId};

pub use marker::{LogState, SyncMarker};
pub use peer_note::PeerNote;
use peer_note::{PeerName, parse_peers, show_peers};
pub use runs::Runs;

/// The layout that this build writes.
const FORMAT: u32 = 4;
/// The oldest that it takes over. 1 had no hints and GC watermarks in the store; a build for only that one would take
/// the store for damaged. 2 had no REBUILT; a build for only that one would count from the store's own sequence again,
/// and what its peers then remember would pass for what was made good. 3 knew nodes by their URLs, in PEERS and in the
/// names of hints; a build for only that one would know none.
const FORMAT_MIN: u32 = 1;
/// What IDENTITY called the directory before format 4, when its number had 32 bits.
const OLD_DIRECTORY: &str = "incarnation ";
/// What FORMAT begins with.
const FORMAT_NAME: &str = "kvorum data directory, format ";

/// Where Linux names this start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// An open data directory, locked until dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Held for its lock.
    _lock: File,
    cluster: ClusterId,
    id: DirectoryId,
    run: RunId,
    rebuilt: AtomicU64,
    is_new: bool,
    is_taken_over: bool,
    peers: Mutex<PeerNotes>,
    /// Held while PEERS is written; what shards lock is `peers` alone.
    writing_peers: Mutex<()>,
}

/// Fills bytes with random numbers: the operating system's, or a simulator's.
pub type FillRandom<'a> = &'a dyn Fn(&mut [u8]) -> io::Result<()>;

#[derive(Debug, Default)]
struct PeerNotes {
    notes: BTreeMap<PeerName, PeerNote>,
    /// Something has changed since the file was written.
    is_dirty: bool,
}

impl DataDir {
    /// Opens or creates the directory for a node of `cluster`. One of an older format is of this build's from then
    /// on. One that knows an epoch of its cluster's layout is of that, whatever list is given.
    ///
    /// # Errors
    /// [`DataDirError`]; nothing has been changed then, but for an empty lock file.
    pub fn open(path: &Path, cluster: ClusterId) -> Result<Self, DataDirError> {
        Self::open_with(path, cluster, &os_random)
    }

    /// The same, with random numbers from `random`.
    ///
    /// # Errors
    /// As [`DataDir::open`].
    pub fn open_with(path: &Path, cluster: ClusterId, random: FillRandom<'_>) -> Result<Self, DataDirError> {
        fs::create_dir_all(path).map_err(io_error("create", path))?;
        let mode = fs::metadata(path).map_err(io_error("look at", path))?.mode() & 0o7777;
        if mode & 0o022 != 0 {
            return Err(DataDirError::WritableByOthers { path: path.to_owned(), mode });
        }
        if is_foreign(path)? {
            return Err(DataDirError::Foreign(path.to_owned()));
        }
        let lock = lock(path)?;
        let format = read(&path.join("FORMAT"))?.map(|text| check_format(path, &text)).transpose()?;
        let is_new = format.is_none();
        let identity = path.join("IDENTITY");
        let (cluster, id, is_taken_over) = if is_new {
            (cluster, create(path, cluster, random)?, false)
        } else {
            let text = read(&identity)?;
            let parsed = text.as_deref().and_then(parse_identity);
            let (found, id) = parsed.ok_or(DataDirError::Damaged(identity))?;
            if found != cluster && read_acceptor(path)?.is_none_or(|acceptor| acceptor.chosen().epoch() == 0) {
                return Err(DataDirError::OtherCluster { path: path.to_owned(), found, expected: cluster });
            }
            (found, id, text.is_some_and(|text| text.contains(OLD_DIRECTORY)))
        };
        let notes = match read(&path.join("PEERS"))? {
            Some(text) => parse_peers(&text).ok_or_else(|| DataDirError::Damaged(path.join("PEERS")))?,
            None => BTreeMap::new(),
        };
        let rebuilt = match read(&path.join("REBUILT"))? {
            Some(text) => parse_rebuilt(&text).ok_or_else(|| DataDirError::Damaged(path.join("REBUILT")))?,
            None => 0,
        };
        if format.is_some_and(|format| format < FORMAT) {
            write_format(path)?;
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
            cluster,
            id,
            run: RunId(u64::from_be_bytes(draw(path, random)?)),
            rebuilt: AtomicU64::new(rebuilt),
            is_new,
            is_taken_over,
            peers: Mutex::new(PeerNotes { notes, is_dirty: false }),
            writing_peers: Mutex::default(),
        })
    }

    /// The list that its cluster was first started with.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The cluster of a directory that is not opened: a node may be using it.
    ///
    /// # Errors
    /// [`DataDirError::Io`], and [`DataDirError::Damaged`] also where there is no data directory.
    pub fn cluster_of(path: &Path) -> Result<ClusterId, DataDirError> {
        let identity = path.join("IDENTITY");
        let text = read(&identity)?;
        let parsed = text.and_then(|text| parse_identity(&text));
        parsed.map(|(cluster, _)| cluster).ok_or(DataDirError::Damaged(identity))
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the store is.
    #[must_use]
    pub fn store_path(&self) -> PathBuf {
        self.path.join("store")
    }

    /// Where the store's files have second names.
    #[must_use]
    pub fn freed_path(&self) -> PathBuf {
        self.path.join("freed")
    }

    /// Drawn when the directory was created.
    #[must_use]
    pub fn id(&self) -> DirectoryId {
        self.id
    }

    /// The incarnation of a run: drawn anew at every call, and kept nowhere.
    ///
    /// # Errors
    /// [`DataDirError::Io`], where the operating system has no random numbers.
    pub fn draw(&self) -> Result<Incarnation, DataDirError> {
        Ok(Incarnation(u32::from_be_bytes(draw(&self.path, &os_random)?)))
    }

    /// Whether this call of [`DataDir::open`] created it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether it was created by a build before format 4: its cluster knew no epochs, and had keys where its list says.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// The runs of this directory and then this one, which began with `recovered`: durable before it returns. Where it
    /// cannot be written down, which is logged, the last one goes on: a peer that has that one has missed nothing that
    /// it needs. Blocks.
    #[must_use]
    pub fn runs(&self, recovered: u64) -> Runs {
        let earlier = || read(&self.path.join("RUNS")).ok().flatten().and_then(|text| Runs::parse(&text));
        let present = Run { id: self.run, recovered };
        let runs = Runs::new(earlier().unwrap_or_default(), present);
        match write(&self.path, "RUNS", runs.text()) {
            Ok(()) => runs,
            Err(error) => {
                tracing::warn!(%error, "cannot write down that a run begins");
                earlier().and_then(Runs::again).unwrap_or(runs)
            }
        }
    }

    /// What is remembered of the peer, after its first handshake.
    #[must_use]
    pub fn remembered(&self, node: NodeId) -> Option<PeerNote> {
        self.peers().notes.get(&PeerName::Node(node)).copied()
    }

    /// What is remembered of the node at this URL, in a directory of a format below 4, is remembered of `node`: durably
    /// with the next notes.
    pub fn name_peer(&self, url: &str, node: NodeId) {
        let mut peers = self.peers();
        if let Some(note) = peers.notes.remove(&PeerName::Url(url.to_owned())) {
            peers.notes.entry(PeerName::Node(node)).or_insert(note);
            peers.is_dirty = true;
        }
    }

    /// Remembers a peer, durably before it returns. Writes only what is new. Connections that are made at the same time
    /// each bring what was in their own handshake: what is known of the directory from another stays. Blocks.
    ///
    /// # Errors
    /// [`DataDirError::Io`]; the note is not remembered then.
    pub fn remember(&self, node: NodeId, note: PeerNote) -> Result<(), DataDirError> {
        let name = PeerName::Node(node);
        let _writing = self.writing_peers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = {
            let peers = self.peers();
            if peers.notes.get(&name) == Some(&note.with(peers.notes.get(&name))) {
                return Ok(());
            }
            peers.notes.clone()
        };
        next.insert(name.clone(), note.with(next.get(&name)));
        self.write_peers(&next)?;
        let mut peers = self.peers();
        // More may have been received while it was written: that is durable with the next notes.
        let note = note.with(peers.notes.get(&name));
        peers.notes.insert(name, note);
        Ok(())
    }

    /// Changes what is remembered of a peer, durably only with the next [`DataDir::persist_peers`]; gives what was
    /// remembered before. Does nothing for a peer without a handshake yet. Does not block.
    pub fn update(&self, node: NodeId, change: impl FnOnce(&mut PeerNote)) -> Option<PeerNote> {
        let mut peers = self.peers();
        let note = peers.notes.get_mut(&PeerName::Node(node))?;
        let before = *note;
        change(note);
        let is_changed = *note != before;
        peers.is_dirty |= is_changed;
        Some(before)
    }

    /// Makes durable what [`DataDir::update`] changed. Blocks.
    ///
    /// # Errors
    /// [`DataDirError::Io`]; the next call tries again.
    pub fn persist_peers(&self) -> Result<(), DataDirError> {
        let _writing = self.writing_peers.lock().unwrap_or_else(PoisonError::into_inner);
        let notes = {
            let mut peers = self.peers();
            if !std::mem::take(&mut peers.is_dirty) {
                return Ok(());
            }
            peers.notes.clone()
        };
        self.write_peers(&notes).inspect_err(|_| self.peers().is_dirty = true)
    }

    #[track_caller]
    fn peers(&self) -> MutexGuard<'_, PeerNotes> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_peers(&self, notes: &BTreeMap<PeerName, PeerNote>) -> Result<(), DataDirError> {
        write(&self.path, "PEERS", with_checksum(&show_peers(notes)))
    }

    /// To be called when the store has been opened, before anything is acknowledged: what an earlier run had
    /// acknowledged without syncing is lost if the machine was started anew since, and then the directory is
    /// durably marked as rebuilding. With [`Durability::Os`] the same is made certain for this run. Blocks.
    ///
    /// # Errors
    /// [`DataDirError::Io`].
    pub fn begin_run(&self, durability: Durability) -> Result<(), DataDirError> {
        let before = read(&self.path.join("RUNNING"))?;
        if before.is_none() && durability == Durability::Fsync {
            return Ok(());
        }
        let boot_id = Path::new(BOOT_ID);
        let boot = read(boot_id)?.ok_or_else(|| DataDirError::Damaged(boot_id.to_owned()))?;
        if before.is_some_and(|before| before != boot) {
            self.set_rebuilding(
                "the machine stopped while this node ran with durability = \"os\": what was not on the disk is lost",
            )?;
            self.end_run()?;
        }
        if durability == Durability::Os { write(&self.path, "RUNNING", &boot) } else { Ok(()) }
    }

    /// To be called when everything is on the disk and nothing will be acknowledged any more. Blocks.
    ///
    /// # Errors
    /// [`DataDirError::Io`].
    pub fn end_run(&self) -> Result<(), DataDirError> {
        self.remove("RUNNING")
    }

    fn remove(&self, name: &str) -> Result<(), DataDirError> {
        let path = self.path.join(name);
        match fs::remove_file(&path).and_then(|()| File::open(&self.path)?.sync_all()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Why this node's answers count for nothing, if they do.
    ///
    /// # Errors
    /// [`DataDirError::Io`].
    pub fn rebuilding(&self) -> Result<Option<String>, DataDirError> {
        Ok(read(&self.path.join("REBUILDING"))?.map(|text| text.trim_end().to_owned()))
    }

    /// Notes that this node has lost what it acknowledged, durably before it returns. The first reason is
    /// kept. Blocks.
    ///
    /// # Errors
    /// [`DataDirError::Io`].
    pub fn set_rebuilding(&self, reason: &str) -> Result<(), DataDirError> {
        if self.rebuilding()?.is_some() {
            return Ok(());
        }
        write(&self.path, "REBUILDING", format!("{}\n", reason.replace('\n', " ")))
    }

    /// Ends what [`DataDir::set_rebuilding`] began, durably before it returns. Blocks.
    ///
    /// # Errors
    /// [`DataDirError::Io`].
    pub fn clear_rebuilding(&self) -> Result<(), DataDirError> {
        self.remove("REBUILDING")
    }

    /// Where the sequence is counted from that peers receive and remember: zero, until this node has got back what it
    /// had lost. Then it is greater than all that any peer remembered; so what is remembered below it is made good, and
    /// what is remembered from there on is not older than that.
    #[must_use]
    pub fn rebuilt(&self) -> u64 {
        self.rebuilt.load(Ordering::Acquire)
    }

    /// Counts from there from now on, durably before it returns. Blocks.
    ///
    /// # Errors
    /// [`DataDirError::Io`].
    pub fn set_rebuilt(&self, rebuilt: u64) -> Result<(), DataDirError> {
        write(&self.path, "REBUILT", with_checksum(&format!("{rebuilt}\n")))?;
        self.rebuilt.store(rebuilt, Ordering::Release);
        Ok(())
    }

    /// The newest layout that this node knows, and what it has promised about the next; none as long as it has promised
    /// nothing and knows none but its list. Blocks.
    ///
    /// # Errors
    /// [`DataDirError::Io`], [`DataDirError::Damaged`].
    pub fn acceptor(&self) -> Result<Option<Acceptor<Layout>>, DataDirError> {
        read_acceptor(&self.path)
    }

    /// Replaces it, durably before it returns. Blocks.
    ///
    /// # Errors
    /// [`DataDirError::Io`].
    pub fn set_acceptor(&self, acceptor: &Acceptor<Layout>) -> Result<(), DataDirError> {
        write(&self.path, "LAYOUT", with_hash(chain::encode(acceptor)))
    }

    /// Opens the sync marker and compares it with how far the store's log was recovered.
    ///
    /// # Errors
    /// [`DataDirError::Io`].
    pub fn sync_marker(&self, recovered: u64) -> Result<(SyncMarker, LogState), DataDirError> {
        let path = self.path.join("SYNCED");
        SyncMarker::open(&path, recovered).map_err(io_error("open", &path))
    }
}

/// Whether there is something here, and no FORMAT. What a first start may have left when it was killed (a
/// lock, half-written files) and what a fresh file system has is nothing.
fn is_foreign(path: &Path) -> Result<bool, DataDirError> {
    let mut has_others = false;
    for entry in fs::read_dir(path).map_err(io_error("list", path))? {
        let name = entry.map_err(io_error("list", path))?.file_name();
        if name == "FORMAT" {
            return Ok(false);
        }
        let is_ours = ["LOCK", "IDENTITY", "SYNCED", "lost+found"].iter().any(|ours| name == *ours);
        has_others |= !is_ours && !name.to_string_lossy().ends_with(".new");
    }
    Ok(has_others)
}

fn lock(path: &Path) -> Result<File, DataDirError> {
    let name = path.join("LOCK");
    let options = OpenOptions::new().write(true).create(true).truncate(false).clone();
    let file = options.open(&name).map_err(io_error("open", &name))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DataDirError::Locked(path.to_owned())),
        Err(error) => Err(io_error("lock", &name)(error.into())),
    }
}

/// FORMAT comes last: with it the directory is complete.
fn create(path: &Path, cluster: ClusterId, random: FillRandom<'_>) -> Result<DirectoryId, DataDirError> {
    let id = DirectoryId(u128::from_be_bytes(draw(path, random)?));
    let synced = path.join("SYNCED");
    fs::write(&synced, SyncMarker::encode(0)).map_err(io_error("write", &synced))?;
    File::open(&synced).and_then(|file| file.sync_all()).map_err(io_error("sync", &synced))?;
    let identity = format!("cluster {cluster}\ndirectory {id}\n");
    write(path, "IDENTITY", with_checksum(&identity))?;
    write_format(path)?;
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        // So that the directory itself survives. Best effort: the parent need not be readable.
        let _ = File::open(parent).and_then(|parent| parent.sync_all());
    }
    Ok(id)
}

fn draw<const BYTES: usize>(path: &Path, random: FillRandom<'_>) -> Result<[u8; BYTES], DataDirError> {
    let mut drawn = [0; BYTES];
    random(&mut drawn).map_err(io_error("draw a random number for", path))?;
    Ok(drawn)
}

fn os_random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
}

fn write_format(path: &Path) -> Result<(), DataDirError> {
    write(path, "FORMAT", format!("{FORMAT_NAME}{FORMAT}\n"))
}

/// The format, if this build can read it.
fn check_format(path: &Path, text: &str) -> Result<u32, DataDirError> {
    let number = text.trim_end().strip_prefix(FORMAT_NAME).and_then(|number| number.parse::<u32>().ok());
    match number {
        Some(found @ FORMAT_MIN..=FORMAT) => Ok(found),
        Some(found) if found > FORMAT => Err(DataDirError::Newer { path: path.to_owned(), found, newest: FORMAT }),
        _ => Err(DataDirError::Damaged(path.join("FORMAT"))),
    }
}

fn read_acceptor(path: &Path) -> Result<Option<Acceptor<Layout>>, DataDirError> {
    let path = path.join("LAYOUT");
    let Some(bytes) = read_bytes(&path)? else { return Ok(None) };
    without_hash(&bytes).and_then(chain::decode).map(Some).ok_or(DataDirError::Damaged(path))
}

fn parse_identity(text: &str) -> Option<(ClusterId, DirectoryId)> {
    let (cluster, id) = without_checksum(text)?.strip_prefix("cluster ")?.split_once('\n')?;
    let id = id.strip_suffix('\n')?;
    let id = id.strip_prefix("directory ").or_else(|| id.strip_prefix(OLD_DIRECTORY))?;
    let cluster = ClusterId(u64::from_str_radix(cluster, 16).ok()?);
    Some((cluster, id.parse().ok()?))
}

fn parse_rebuilt(text: &str) -> Option<u64> {
    without_checksum(text)?.strip_suffix('\n')?.parse().ok()
}

#[cfg(test)]
mod tests;
