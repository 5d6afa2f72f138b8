//! How far the store's log was durable, and whether it was recovered so far.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

/// Whether the store's log has everything that was synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// It has.
    Whole,
    /// It has not: this node lost what it acknowledged.
    Shortened {
        /// How far it was synced.
        synced: u64,
        /// How far it was recovered.
        recovered: u64,
    },
    /// The marker is missing or damaged: it must be taken for shortened.
    Unknown,
}

impl LogState {
    /// The reason to give [`DataDir::set_rebuilding`](super::DataDir::set_rebuilding), if there is one.
    #[must_use]
    pub fn loss(self) -> Option<String> {
        match self {
            Self::Whole => None,
            Self::Shortened { synced, recovered } => Some(format!(
                "the write-ahead log was recovered up to sequence {recovered}, but had been synced up to {synced}"
            )),
            Self::Unknown => Some("the sync marker is missing or damaged".to_owned()),
        }
    }
}

/// How far the store's log was durable, written after each durable commit and never synced itself: it may
/// lag behind the log, and must not run ahead of it.
#[derive(Debug)]
pub struct SyncMarker {
    file: File,
}

impl SyncMarker {
    const BYTES: usize = 16;

    /// Opens the marker, and compares it with how far the store's log was recovered.
    pub(super) fn open(path: &Path, recovered: u64) -> io::Result<(Self, LogState)> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = [0; Self::BYTES];
        let length = file.read_at(&mut bytes, 0)?;
        let log = match Self::decode(&bytes).filter(|_| length == Self::BYTES) {
            Some(synced) if recovered < synced => LogState::Shortened { synced, recovered },
            Some(_) => LogState::Whole,
            None => LogState::Unknown,
        };
        Ok((Self { file }, log))
    }

    /// Notes that everything up to `sequence` is durable. One small `pwrite` to the page cache.
    ///
    /// # Errors
    /// The operating system's. The marker then lags behind, which loses a check and no data.
    pub fn write(&self, sequence: u64) -> io::Result<()> {
        self.file.write_all_at(&Self::encode(sequence), 0)
    }

    pub(super) fn encode(sequence: u64) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (number, checksum) = bytes.split_at_mut(8);
        number.copy_from_slice(&sequence.to_be_bytes());
        checksum.copy_from_slice(&xxh3_64(number).to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8; Self::BYTES]) -> Option<u64> {
        let (number, checksum) = bytes.split_first_chunk::<8>()?;
        (checksum == xxh3_64(number).to_be_bytes()).then(|| u64::from_be_bytes(*number))
    }
}
