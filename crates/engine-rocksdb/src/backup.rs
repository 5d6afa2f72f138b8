//! Backups of one node, and directories restored from them.
//!
//! ```text
//! BACKUP      cluster, node, when, how far the store had got
//! store/      RocksDB: table files are hard links to the live ones, the rest is copied
//! ```
//!
//! Promises: what was acknowledged before [`take`] was called is in the backup, and writes go on meanwhile. A
//! directory that [`restore`] made belongs to the backup's cluster and to no other, and does not vote: a
//! restored copy has lost what was acknowledged after it (`docs/explanation/amnesia.md`). Only where the whole cluster
//! is restored, and so no node has more, does it vote at once.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvorum_base::cpu_share::CpuShare;
use kvorum_storage::StoreError;
pub use kvorum_storage::backup_label::Label;
use kvorum_storage::budget::MemoryBudget;
use kvorum_storage::commit::forget_promises;
use kvorum_storage::data_dir::{ClusterId, DataDir, DataDirError};

use crate::{OpenError, RocksStore};

/// A backup that was not fetched is removed after this.
const UNFETCHED_FOR: Duration = Duration::from_secs(3600);
/// The name of a backup while it is copied, so that no other takes its place. After a day the copy has failed.
pub const COPIED: &str = "backup.copied";
const COPIED_FOR: Duration = Duration::from_secs(24 * 3600);
/// The name of the description, which is written last.
const LABEL: &str = "BACKUP";

/// What a restored directory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One node, whose peers have what was acknowledged since.
    Node,
    /// Every node of the cluster: what was acknowledged since is given up.
    Cluster,
}

/// Why there is no backup, or no restored directory. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// The store did.
    #[error("the store gives no snapshot: {0}")]
    Store(#[from] StoreError),
    /// The new directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// Not a backup, or half of one.
    #[error(
        "{0} is no complete backup: its BACKUP file is missing or damaged. Give the directory that `kvorum backup` made"
    )]
    NotABackup(PathBuf),
    /// It has less than it says.
    #[error("the backup in {path} is damaged: {loss}. Remove the directory that was begun, and take another backup")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is missing.
        loss: String,
    },
    /// What was copied does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Of another cluster.
    #[error("the backup is of cluster {found}, and --cluster names cluster {expected}: clusters are never mixed")]
    OtherCluster {
        /// The backup's.
        found: ClusterId,
        /// Where it should go.
        expected: ClusterId,
    },
    /// Of another node.
    #[error("the backup is of {found}, and this node is {expected}: restore it there, its keys belong there")]
    OtherNode {
        /// The backup's.
        found: String,
        /// Where it should go.
        expected: String,
    },
    /// A link, or something else that no backup has.
    #[error("{0} is neither a file nor a directory: no backup has such a thing, and links are not followed")]
    NoFile(PathBuf),
    /// There is something there.
    #[error("{0} is in use or has data: a backup is restored into an empty or a new directory. Move the old one away")]
    NotEmpty(PathBuf),
}

/// Reads the description of a backup.
///
/// # Errors
/// [`BackupError::NotABackup`].
pub fn label(backup: &Path) -> Result<Label, BackupError> {
    let text = fs::read_to_string(backup.join(LABEL)).ok();
    text.and_then(|text| Label::parse(&text)).ok_or_else(|| BackupError::NotABackup(backup.to_owned()))
}

/// Takes a backup into `data_dir`/backup, in place of the last that was not fetched from there: so that they do not
/// pile up. Blocks, for as long as it takes to write out what is only in memory.
///
/// # Errors
/// [`BackupError`]; what there was of this backup is removed with the next one.
pub fn take(data_dir: &Path, store: &RocksStore, label: &Label) -> Result<PathBuf, BackupError> {
    let (fresh, path) = (data_dir.join("backup.new"), data_dir.join("backup"));
    remove(&fresh)?;
    fs::create_dir(&fresh).map_err(failed("create", &fresh))?;
    store.checkpoint(&fresh.join("store"))?;
    let name = fresh.join(LABEL);
    fs::write(&name, label.text()).map_err(failed("write", &name))?;
    sync(&name)?;
    sync(&fresh)?;
    remove(&path)?;
    fs::rename(&fresh, &path).map_err(failed("rename", &fresh))?;
    sync(data_dir)?;
    Ok(path)
}

/// Removes a backup in `data_dir` that was taken long before `now` and was not fetched, or not copied to its end.
/// Whether there was one. Blocks.
///
/// # Errors
/// [`BackupError::Io`].
pub fn forget_older(data_dir: &Path, now: SystemTime) -> Result<bool, BackupError> {
    let mut was_there = false;
    for (name, kept) in [("backup", UNFETCHED_FOR), (COPIED, COPIED_FOR)] {
        let path = data_dir.join(name);
        let taken = fs::symlink_metadata(&path).and_then(|metadata| metadata.modified());
        // A clock that was set back makes nothing old.
        if taken.is_ok_and(|taken| now.duration_since(taken).is_ok_and(|age| age > kept)) {
            remove(&path)?;
            was_there = true;
        }
    }
    Ok(was_there)
}

/// Makes the data directory of `node` of a backup, which stays as it is. Killed half-way it leaves a directory
/// that does not vote. Blocks.
///
/// # Errors
/// [`BackupError`].
pub fn restore(
    backup: &Path,
    data_dir: &Path,
    cluster: ClusterId,
    node: &str,
    scope: Scope,
) -> Result<Label, BackupError> {
    let label = label(backup)?;
    if label.cluster != cluster {
        return Err(BackupError::OtherCluster { found: label.cluster, expected: cluster });
    }
    if label.node != node {
        return Err(BackupError::OtherNode { found: label.node, expected: node.to_owned() });
    }
    let directory = match DataDir::open(data_dir, cluster) {
        Ok(directory) if directory.is_new() => directory,
        Ok(_) | Err(DataDirError::Foreign(_) | DataDirError::Locked(_) | DataDirError::OtherCluster { .. }) => {
            return Err(BackupError::NotEmpty(data_dir.to_owned()));
        }
        Err(error) => return Err(error.into()),
    };
    let taken = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(label.wall_ms));
    directory.set_rebuilding(&format!("restored from a backup of {taken}: what was acknowledged since is not here"))?;
    copy(&backup.join("store"), &directory.store_path(), TableFiles::Linked)?;
    let (marker, _) = directory.sync_marker(0)?;
    let name = data_dir.join("SYNCED");
    marker.write(label.sequence).map_err(failed("write", &name))?;
    sync(&name)?;
    let budget = MemoryBudget::new(MemoryBudget::BYTES_MIN).expect("the least is allowed");
    let (store, log) = RocksStore::open_in(&directory, budget, CpuShare::whole())?;
    if let Some(loss) = log.loss() {
        return Err(BackupError::Damaged { path: backup.to_owned(), loss });
    }
    if scope == Scope::Cluster {
        // The others go back to other moments: what was proven of them holds no longer.
        forget_promises(&store)?;
        directory.clear_rebuilding()?;
    }
    Ok(label)
}

/// What a copy of a backup has of its table files, which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFiles {
    /// Hard links, where the file system allows it.
    Linked,
    /// Copies, which share nothing with the node's own.
    Copied,
}

/// Copies a backup's files. Follows no links.
///
/// # Errors
/// [`BackupError::Io`], [`BackupError::NoFile`].
pub fn copy(from: &Path, to: &Path, tables: TableFiles) -> Result<(), BackupError> {
    fs::create_dir_all(to).map_err(failed("create", to))?;
    for entry in fs::read_dir(from).map_err(failed("list", from))? {
        let entry = entry.map_err(failed("list", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(failed("look at", &source))?;
        if kind.is_dir() {
            copy(&source, &target, tables)?;
            continue;
        }
        if !kind.is_file() {
            return Err(BackupError::NoFile(source));
        }
        let is_table = source.extension().is_some_and(|extension| extension == "sst");
        if !is_table || tables == TableFiles::Copied || fs::hard_link(&source, &target).is_err() {
            fs::copy(&source, &target).map_err(failed("copy", &source))?;
            sync(&target)?;
        }
    }
    sync(to)
}

fn remove(path: &Path) -> Result<(), BackupError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

fn sync(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(failed("sync", path))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError + use<> {
    let path = path.to_owned();
    move |source| BackupError::Io { action, path, source }
}
