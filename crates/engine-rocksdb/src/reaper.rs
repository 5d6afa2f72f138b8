//! Frees the space of files that the engine has deleted, piece by piece.
//!
//! A file's blocks are freed when its last name goes, all at once. Where the file system is mounted with `discard`, as
//! in most images for virtual machines, the device discards them then, and does nothing else: 20 to 80 ms for a table
//! or a log, in which every sync of the log waits. So each of the engine's files gets a second name here as soon as it
//! is seen. When that is its last one, the file is truncated from its end, a piece at a time, and goes.
//!
//! A file that has a third name, in a backup, is left alone until it has not. Where the file system has no hard
//! links, or does not count them, the engine's files are freed at once, as ever.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Freed at a time, for which the device takes about a millisecond.
const PIECE: u64 = 1 << 20;
/// Between two pieces: at most 100 MiB a second, and nine tenths of the device's time is for others.
const PAUSE: Duration = Duration::from_millis(10);
/// Where less is free, nothing waits.
const SPARE_BYTES: u64 = 1 << 30;
/// Between two looks at the engine's directory. What lives for a shorter time is freed at once.
const TICK: Duration = Duration::from_millis(500);

/// The thread that does it. Dropped, it frees what is left at once, and ends.
pub struct Reaper {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    /// Starts it for the engine's directory, with `names` for the second names, which is created.
    ///
    /// # Errors
    /// The operating system's, where it starts no thread.
    pub fn start(store: PathBuf, names: PathBuf) -> io::Result<Self> {
        // Nothing is sent: it is dropped.
        let (stop, stopped) = mpsc::sync_channel(0);
        let mut work = ReaperQueue { store, names, stopped, kept: HashSet::new(), seen: HashSet::new() };
        let thread = std::thread::Builder::new().name("reaper".to_owned()).spawn(move || {
            if let Err(error) = work.run() {
                tracing::warn!(%error, "deleted files are freed at once, which may hold up writes");
                // Only names: nothing else would ever remove them.
                let _ = fs::remove_dir_all(&work.names);
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct ReaperQueue {
    store: PathBuf,
    names: PathBuf,
    stopped: Receiver<()>,
    /// Files with a name of ours.
    kept: HashSet<OsString>,
    /// Files with a name of the engine's, when its directory was looked at last.
    seen: HashSet<OsString>,
}

impl ReaperQueue {
    fn run(&mut self) -> io::Result<()> {
        fs::create_dir_all(&self.names)?;
        // Those of an earlier run; and in a copy of a data directory the two names are two files.
        for name in list(&self.names)? {
            if !self.free(&name)? {
                self.kept.insert(name);
            }
        }
        loop {
            self.look()?;
            let gone: Vec<OsString> = self.kept.difference(&self.seen).cloned().collect();
            for name in gone {
                if self.free(&name)? {
                    self.kept.remove(&name);
                    self.look()?;
                }
            }
            if self.is_stopped(TICK) {
                return Ok(());
            }
        }
    }

    fn is_stopped(&self, wait: Duration) -> bool {
        !matches!(self.stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
    }

    /// Gives new files of the engine a second name.
    fn look(&mut self) -> io::Result<()> {
        self.seen = list(&self.store)?;
        let new: Vec<OsString> = self.seen.difference(&self.kept).cloned().collect();
        for name in new {
            let own = self.names.join(&name);
            match fs::hard_link(self.store.join(&name), &own) {
                Ok(()) => {}
                // Deleted meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            if fs::metadata(&own)?.nlink() < 2 && self.store.join(&name).exists() {
                fs::remove_file(&own)?;
                return Err(io::Error::new(ErrorKind::Unsupported, "the file system does not count hard links"));
            }
            self.kept.insert(name);
        }
        Ok(())
    }

    /// Frees a file, unless it has another name. Whether it is gone.
    fn free(&self, name: &OsString) -> io::Result<bool> {
        let path = self.names.join(name);
        let file = match OpenOptions::new().write(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
            opened => opened?,
        };
        let metadata = file.metadata()?;
        // Asked of the engine's name, too: a node may have been killed before it saw that links are not counted here.
        let is_live = fs::metadata(self.store.join(name))
            .is_ok_and(|live| (live.dev(), live.ino()) == (metadata.dev(), metadata.ino()));
        if metadata.nlink() > 1 || is_live {
            return Ok(false);
        }
        self.shorten(&file, metadata.len())?;
        fs::remove_file(&path)?;
        Ok(true)
    }

    fn shorten(&self, file: &File, mut length: u64) -> io::Result<()> {
        while length > PIECE && available(&self.names)? > SPARE_BYTES {
            length -= PIECE;
            file.set_len(length)?;
            if self.is_stopped(PAUSE) {
                break;
            }
        }
        Ok(())
    }
}

/// The tables and logs in a directory.
fn list(directory: &Path) -> io::Result<HashSet<OsString>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name()));
    let is_ours = |name: &OsString| Path::new(name).extension().is_some_and(|kind| kind == "sst" || kind == "log");
    names.filter(|name| name.as_ref().map_or(true, is_ours)).collect()
}

fn available(directory: &Path) -> io::Result<u64> {
    let space = rustix::fs::statvfs(directory)?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Instant;

    use tempfile::TempDir;

    use crate::reaper::*;

    const LONG: Duration = Duration::from_secs(20);

    struct Rig {
        dir: TempDir,
    }

    impl Rig {
        fn new() -> Self {
            let dir = TempDir::new().unwrap();
            fs::create_dir(dir.path().join("store")).unwrap();
            Self { dir }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn write(&self, name: &str, bytes: usize) {
            fs::write(self.path(name), vec![b'x'; bytes]).unwrap();
        }

        fn start(&self) -> Reaper {
            Reaper::start(self.path("store"), self.path("freed")).unwrap()
        }

        fn until(&self, what: &str, condition: impl Fn() -> bool) {
            let begin = Instant::now();
            while !condition() {
                assert!(begin.elapsed() < LONG, "{what}: {:?}", list(&self.path("freed")));
                std::thread::park_timeout(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn what_is_deleted_shrinks_and_goes() {
        let rig = Rig::new();
        rig.write("store/000001.log", 5 << 20);
        rig.write("store/000002.sst", 100);
        rig.write("store/CURRENT", 1);
        let _reaper = rig.start();
        rig.until("both have a second name", || {
            rig.path("freed/000001.log").exists() && rig.path("freed/000002.sst").exists()
        });
        let file = File::open(rig.path("store/000001.log")).unwrap();
        fs::remove_file(rig.path("store/000001.log")).unwrap();
        rig.until("the log goes", || !rig.path("freed/000001.log").exists());
        assert!(file.metadata().unwrap().len() <= PIECE, "it was truncated first");
        assert_eq!(fs::metadata(rig.path("store/000002.sst")).unwrap().len(), 100);
        assert!(!rig.path("freed/CURRENT").exists());
    }

    #[test]
    fn what_a_backup_has_is_left_alone_until_the_backup_goes() {
        let rig = Rig::new();
        rig.write("store/000001.sst", 3 << 20);
        let _reaper = rig.start();
        rig.until("it has a second name", || rig.path("freed/000001.sst").exists());
        fs::hard_link(rig.path("store/000001.sst"), rig.path("backup")).unwrap();
        fs::remove_file(rig.path("store/000001.sst")).unwrap();
        rig.write("store/000002.sst", 3 << 20);
        rig.until("it has looked again", || rig.path("freed/000002.sst").exists());
        fs::remove_file(rig.path("store/000002.sst")).unwrap();
        rig.until("what has no third name goes", || !rig.path("freed/000002.sst").exists());
        assert_eq!(fs::metadata(rig.path("backup")).unwrap().len(), 3 << 20);
        fs::remove_file(rig.path("backup")).unwrap();
        rig.until("it goes, too", || !rig.path("freed/000001.sst").exists());
    }

    #[test]
    fn what_an_earlier_run_has_left_goes_and_what_is_left_at_the_end_goes_at_once() {
        let rig = Rig::new();
        fs::create_dir(rig.path("freed")).unwrap();
        // In a copy of a data directory the two names are two files.
        rig.write("freed/000001.sst", 10);
        rig.write("store/000001.sst", 10);
        File::create(rig.path("freed/000002.sst")).unwrap().set_len(500 << 20).unwrap();
        let reaper = rig.start();
        rig.until("it begins", || fs::metadata(rig.path("freed/000002.sst")).map_or(0, |file| file.len()) < 500 << 20);
        drop(reaper);
        assert!(!rig.path("freed/000002.sst").exists());
        assert_eq!(fs::metadata(rig.path("store/000001.sst")).unwrap().len(), 10);
    }

    #[test]
    fn a_directory_that_goes_ends_it() {
        let rig = Rig::new();
        rig.write("store/000001.sst", 10);
        let mut reaper = rig.start();
        rig.until("it has a second name", || rig.path("freed/000001.sst").exists());
        fs::remove_dir_all(rig.path("store")).unwrap();
        let thread = reaper.thread.take().unwrap();
        rig.until("it ends", || thread.is_finished());
        assert!(!rig.path("freed").exists(), "and leaves no names");
    }
}
