//! Zeros behind the end of the engine's log, so that a sync of it waits for the disk once less.
//!
//! Where a write makes a file longer, its inode changes, and `fdatasync` writes that too, through the file system's
//! journal. So the log is made longer in advance: zeros are appended to it, which the engine, with a position of its
//! own in the file, overwrites. An append cannot overwrite what the engine has written, whichever comes first: the file
//! system lets one write at a time into a file, and an append begins where the file ends at that moment.
//!
//! For the engine the zeros are no end of a log: it passes over a part of one, and a log that another follows must have
//! the length that the other has for it. So [`cut`] takes them away before it opens. Decision 0047.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Appended at a time: less is appended more often, and each time is a sync of the old price and of so much more.
const PIECE: usize = 128 << 10;
/// Writes of more than this have no need of zeros, which would double what goes to the disk for a small part of a sync.
const SMALL: usize = 16 << 10;
/// The engine's format of a log: blocks, and in them records with headers (`db/log_format.h`). Nothing is written into
/// the last bytes of a block where no header fits.
const BLOCK: usize = 32 << 10;
/// Checksum (4 bytes), length of what follows (2, little-endian), type (1).
const HEADER: usize = 7;

static ZEROS: [u8; PIECE] = [0; PIECE];

/// Of the log that a store writes. What it counts may be off: then a sync costs what it costs without zeros.
pub(super) struct LogZeros {
    directory: PathBuf,
    /// Its number; zero until it is looked for. A directory may have thousands of tables.
    number: AtomicU64,
    /// Bytes written into the log.
    written: AtomicU64,
    /// Where its zeros end.
    end: AtomicU64,
}

impl LogZeros {
    /// For the store in `directory`, which begins a new log when it is opened.
    pub(super) fn new(directory: &Path) -> Self {
        let [number, written, end] = Default::default();
        Self { directory: directory.to_owned(), number, written, end }
    }

    /// The engine has begun a new log.
    pub(super) fn begin_log(&self) {
        for count in [&self.number, &self.written, &self.end] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// A write of `bytes` is in the log.
    pub(super) fn note_written(&self, bytes: usize) {
        self.written.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// A write of `bytes` was synced, and one like it may be next: sees to it that there are zeros for that. They are
    /// durable with it.
    pub(super) fn note_synced(&self, bytes: usize) {
        self.note_written(bytes);
        let next = self.written.load(Ordering::Relaxed).saturating_add(SMALL as u64);
        if bytes <= SMALL && next > self.end.load(Ordering::Relaxed) {
            // A log is as good without. Not tried again at each write.
            self.end.store(self.append().unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Makes the log longer, and returns its length.
    fn append(&self) -> io::Result<u64> {
        let mut number = self.number.load(Ordering::Relaxed);
        if number == 0 {
            let numbers =
                logs(&self.directory)?.into_iter().filter_map(|path| path.file_stem()?.to_str()?.parse().ok());
            number = numbers.max().ok_or(io::ErrorKind::NotFound)?;
            self.number.store(number, Ordering::Relaxed);
        }
        let name = format!("{number:06}.log");
        let mut log = OpenOptions::new().append(true).open(self.directory.join(name))?;
        log.write_all(&ZEROS)?;
        Ok(log.metadata()?.len())
    }
}

fn logs(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "log"));
    Ok(paths)
}

/// Takes the zeros behind the records of every log in the engine's `directory` away, before it is opened. What is
/// damaged or torn is left to the engine, but for what lies behind an empty place: where a loss of power has left one,
/// what follows had not been synced. Reads all logs. A directory that does not exist has none. Nothing else may have
/// the store open.
///
/// # Errors
/// The operating system's.
pub fn cut(directory: &Path) -> io::Result<()> {
    let logs = match logs(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        logs => logs?,
    };
    for path in logs {
        if let Some(end) = end_before_zeros(&mut File::open(&path)?)? {
            OpenOptions::new().write(true).open(&path)?.set_len(end)?;
        }
    }
    Ok(())
}

/// Where the last record ends before an empty header, or before zeros in which none fits; nothing, where a log ends
/// otherwise.
fn end_before_zeros(log: &mut impl Read) -> io::Result<Option<u64>> {
    let mut block = Vec::with_capacity(BLOCK);
    let (mut begin, mut end) = (0, 0);
    loop {
        block.clear();
        log.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
        let mut rest = block.as_slice();
        while let Some((&[_, _, _, _, low, high, kind], payload)) = rest.split_first_chunk::<HEADER>() {
            let length = u16::from_le_bytes([low, high]);
            if length == 0 && kind == 0 {
                return Ok(Some(end));
            }
            let Some(behind) = payload.get(usize::from(length)..) else { return Ok(None) };
            rest = behind;
            end = begin + (block.len() - rest.len()) as u64;
        }
        begin += block.len() as u64;
        if block.len() < BLOCK {
            let is_zeros = rest.iter().all(|byte| *byte == 0);
            return Ok((end < begin && is_zeros).then_some(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::log_zeros::*;

    /// A log of records with payloads of these lengths, cut into fragments as the engine does.
    fn log(lengths: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for length in lengths {
            let mut left = *length;
            loop {
                if BLOCK - bytes.len() % BLOCK < HEADER {
                    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
                }
                let fits = left.min(BLOCK - bytes.len() % BLOCK - HEADER);
                bytes.extend([7, 7, 7, 7]);
                bytes.extend(u16::try_from(fits).unwrap().to_le_bytes());
                bytes.push(1);
                // Zeros that belong to a record stay.
                bytes.resize(bytes.len() + fits, 0);
                left -= fits;
                if left == 0 {
                    break;
                }
            }
        }
        bytes
    }

    fn end(bytes: &[u8]) -> Option<u64> {
        end_before_zeros(&mut &*bytes).unwrap()
    }

    #[test]
    fn a_log_ends_with_its_last_record() {
        // The last two end where no header fits any more, and where a block does.
        let (no_header_fits, whole_block) = (BLOCK - HEADER - 3, BLOCK - HEADER);
        for lengths in
            [&[100][..], &[], &[0], &[100, 70_000, 5], &[40, no_header_fits], &[no_header_fits], &[whole_block]]
        {
            let records = log(lengths);
            assert_eq!(end(&records), None, "{lengths:?}: nothing to cut");
            for zeros in [1, 2, 3, HEADER - 1, HEADER, 100, BLOCK, PIECE + 3] {
                let found = end(&[&records[..], &vec![0; zeros]].concat());
                assert_eq!(found, Some(records.len() as u64), "{lengths:?} and {zeros} zeros");
            }
        }
    }

    #[test]
    fn what_is_behind_an_empty_place_goes_with_it() {
        let mut bytes = log(&[100, 200, 300]);
        bytes[HEADER + 100..][..HEADER].fill(0);
        assert_eq!(end(&bytes), Some((HEADER + 100) as u64));
    }

    #[test]
    fn what_is_torn_or_damaged_is_the_engines() {
        let whole = log(&[100, 200]);
        assert_eq!(end(&whole[..whole.len() - 1]), None, "a record without its end");
        assert_eq!(end(&whole[..HEADER + 100 + 3]), None, "half a header");
        let mut longer = whole.clone();
        longer[5] = 0xff;
        longer.resize(BLOCK * 2, 0);
        assert_eq!(end(&longer), None, "a record that ends behind its block");
    }

    #[test]
    fn zeros_are_appended_to_the_newest_log_until_there_are_enough() {
        let directory = tempfile::tempdir().unwrap();
        let length = |name: &str| fs::metadata(directory.path().join(name)).unwrap().len();
        for name in ["000009.log", "1000000.log", "999999.log", "1000001.sst"] {
            fs::write(directory.path().join(name), b"x").unwrap();
        }
        let zeros = LogZeros::new(directory.path());
        zeros.note_synced(SMALL + 1);
        assert_eq!(length("1000000.log"), 1, "for a large write");
        zeros.note_synced(100);
        zeros.note_synced(100);
        assert_eq!(length("1000000.log"), 1 + PIECE as u64);
        zeros.note_written(PIECE);
        zeros.note_synced(100);
        assert_eq!(length("1000000.log"), 1 + 2 * PIECE as u64);
        fs::write(directory.path().join("1000002.log"), b"").unwrap();
        zeros.begin_log();
        zeros.note_synced(100);
        assert_eq!((length("1000000.log"), length("1000002.log")), (1 + 2 * PIECE as u64, PIECE as u64));
        assert_eq!(length("999999.log") + length("000009.log") + length("1000001.sst"), 3);
        fs::remove_dir_all(directory.path()).unwrap();
        zeros.begin_log();
        zeros.note_synced(100);
        assert_eq!(zeros.end.load(Ordering::Relaxed), u64::MAX, "not tried at each write");
        cut(directory.path()).unwrap();
    }
}
