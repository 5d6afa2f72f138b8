//! What the node allocates: a count of all bytes, and a profile of a sample of them. Both are jemalloc's, and of all
//! threads, RocksDB's included.
//!
//! Bytes are those of jemalloc's size classes, what was asked for rounded up. The count is of what threads have taken:
//! up to a few hundred objects of each class and thread later than they did, because threads add up for themselves.
//! The sample is one allocation about every 128 KiB, each standing for as many bytes as its size makes likely. Of both
//! it does not matter whether what was allocated has been freed since: the profile is the difference of two accounts
//! that only grow. These keep every stack that ever allocated in a profile, until the process ends.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, memfd_create};
use tikv_jemalloc_ctl::{Access, AsName, Error, Mib};

use super::sample::{Profile, Refusal, SamplingWait};
use super::symbols::Symbols;

/// `MALLCTL_ARENAS_ALL`
const ALL_ARENAS: usize = 4096;

/// Bytes allocated since the process began. Takes about a tenth of a millisecond.
///
/// # Errors
/// jemalloc's, where it was built without statistics.
pub(crate) fn allocated_bytes() -> Result<u64, Error> {
    // Whatever is written: the counts are brought up to date.
    b"epoch\0".name().write(1_u64)?;
    let small = class_bytes(b"arenas.nbins\0", b"arenas.bin.0.size\0", b"stats.arenas.0.bins.0.nrequests\0")?;
    let large =
        class_bytes(b"arenas.nlextents\0", b"arenas.lextent.0.size\0", b"stats.arenas.0.lextents.0.nrequests\0")?;
    Ok(small + large)
}

/// Of the size classes of one sort: how many there are, the size of each, and how often it was asked for.
fn class_bytes(classes: &[u8], size: &[u8], requests: &[u8]) -> Result<u64, Error> {
    let classes: u32 = classes.name().read()?;
    let mut size: Mib<[usize; 4]> = size.name().mib()?;
    let mut requests: Mib<[usize; 6]> = requests.name().mib()?;
    let mut bytes = 0;
    for class in 0..classes as usize {
        (size[2], requests[2], requests[4]) = (class, ALL_ARENAS, class);
        let requests: u64 = requests.read()?;
        if requests > 0 {
            let size: usize = size.read()?;
            bytes += requests * size as u64;
        }
    }
    Ok(bytes)
}

pub(super) fn take(pass: &mut SamplingWait<'_>) -> Result<Profile, Refusal> {
    let before = Account::read()?;
    let active = Active::begin()?;
    let counted = allocated_bytes().map_err(impossible)?;
    let time = pass(&mut || Ok(()))?;
    let counted = allocated_bytes().map_err(impossible)?.saturating_sub(counted);
    drop(active);
    let after = Account::read()?;
    let note = format!("sampled about every 128 KiB, of {counted} bytes counted, freed since or not");
    let mut profile = Profile { time, note, ..Profile::default() };
    let mut symbols = Symbols::default();
    for (stack, sum) in after.0 {
        let earlier = before.0.get(&stack).copied().unwrap_or_default();
        let samples = sum.samples.saturating_sub(earlier.samples);
        if samples == 0 {
            continue;
        }
        profile.samples += samples;
        let frames = symbols.frames(&stack);
        if !frames.is_whole {
            profile.truncated += samples;
        }
        profile.add(who_allocates(frames.names()).into_iter(), sum.bytes.saturating_sub(earlier.bytes));
    }
    Ok(profile)
}

/// A stack, from its outermost name to the one that needs the memory, whatever allocates it.
fn who_allocates<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut stack: Vec<&str> = names.take_while(|name| !is_allocator(name)).collect();
    let wants = stack.iter().rposition(|name| !is_on_the_way(name));
    // No other is in it: then it is shown whole.
    stack.truncate(wants.map_or(stack.len(), |last| last + 1));
    stack
}

/// Whether all allocations come through it: collections and boxes, and what is between them and jemalloc.
fn is_on_the_way(name: &str) -> bool {
    const FILES: [&str; 2] = ["(library/alloc/src/", "(library/core/src/"];
    const FUNCTIONS: [&str; 4] = ["operator new", "__rust_alloc", "strdup", "ZSTD_customMalloc"];
    FILES.iter().any(|file| name.contains(file)) || FUNCTIONS.iter().any(|function| name.starts_with(function))
}

/// From here inwards a stack is jemalloc's own.
fn is_allocator(name: &str) -> bool {
    const ENTRIES: [&str; 8] =
        ["malloc", "calloc", "realloc", "mallocx", "rallocx", "aligned_alloc", "posix_memalign", "imalloc"];
    let function = name.split(' ').next().unwrap_or(name);
    function.starts_with("_rjem_") || ENTRIES.contains(&function)
}

fn impossible(error: impl std::fmt::Display) -> Refusal {
    Refusal::Impossible(format!("jemalloc takes no profile: {error}"))
}

/// Allocations are sampled, until this is dropped.
struct Active;

impl Active {
    fn begin() -> Result<Self, Refusal> {
        b"prof.active\0".name().write(true).map_err(impossible)?;
        Ok(Self)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if let Err(error) = b"prof.active\0".name().write(false) {
            tracing::error!(%error, "allocations are still being sampled");
        }
    }
}

/// All that was sampled since the process began, by stack, the innermost address first.
struct Account(HashMap<Vec<u64>, AllocationTotal>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AllocationTotal {
    samples: u64,
    /// That they stand for.
    bytes: u64,
}

impl Account {
    /// Has jemalloc write it down, and reads it.
    fn read() -> Result<Self, Refusal> {
        let (file, path) = memory_file().map_err(impossible)?;
        b"prof.dump\0".name().write(path.as_str()).map_err(impossible)?;
        let text = std::fs::read_to_string(path.trim_end_matches('\0')).map_err(impossible)?;
        // It is memory of this process.
        file.set_len(0).map_err(impossible)?;
        parse(&text).map(Self).ok_or_else(|| impossible("its account is not in the form heap_v2"))
    }
}

/// A file that is in no directory: no other process can prepare it, and it ends with the process, however that ends.
/// With its path, and a 0 behind that. It is kept, because jemalloc takes only names that stay.
fn memory_file() -> rustix::io::Result<&'static (File, String)> {
    static FILE: OnceLock<(File, String)> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(file);
    }
    // Some systems refuse one that could be executed; Linux before 6.3 has no other.
    let create = |flags| memfd_create("kvorum-heap", MemfdFlags::CLOEXEC | flags);
    let file = create(MemfdFlags::NOEXEC_SEAL).or_else(|_| create(MemfdFlags::empty()))?;
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    Ok(FILE.get_or_init(|| (file.into(), path)))
}

/// `heap_v2/RATE`, then for each stack `@ ADDRESS …` and below it `t*: LIVE: BYTES [EVER: BYTES]`, of what was sampled.
fn parse(text: &str) -> Option<HashMap<Vec<u64>, AllocationTotal>> {
    let mut lines = text.lines();
    let rate = lines.next()?.strip_prefix("heap_v2/")?.parse::<u32>().ok()?;
    let mut stacks = HashMap::new();
    while let Some(line) = lines.next() {
        let Some(addresses) = line.strip_prefix("@ ") else { continue };
        let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let addresses: Option<Vec<u64>> = addresses.split(' ').map(address).collect();
        let ever = lines.next()?.trim_start().strip_prefix("t*:")?.split_once('[')?.1.strip_suffix(']')?;
        let (samples, bytes) = ever.split_once(": ")?;
        stacks.insert(addresses?, stands_for(samples.parse().ok()?, bytes.parse().ok()?, rate));
    }
    Some(stacks)
}

/// Of `rate` bytes, an allocation of size s is sampled with the probability 1 − e^(−s/rate). jemalloc has weighed sizes
/// such that this, applied to the mean size, gives the bytes that it has estimated.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
fn stands_for(samples: u64, bytes: u64, rate: u32) -> AllocationTotal {
    if samples == 0 {
        return AllocationTotal::default();
    }
    let mean = bytes as f64 / samples as f64;
    AllocationTotal { samples, bytes: (bytes as f64 / -(-mean / f64::from(rate)).exp_m1()) as u64 }
}

#[cfg(test)]
mod tests {
    use crate::profile::allocations::*;

    #[test]
    fn an_account_is_read_and_scaled() {
        let text = "heap_v2/131072\n  t*: 3: 300 [9: 900]\n  t0: 3: 300 [9: 900]\n@ 0x10 0x2a\n  t*: 0: 0 [2: 2000]\n  \
            t0: 0: 0 [2: 2000]\n@ 0x10\n  t*: 1: 10485760 [1: 10485760]\n  t0: 1: 1 [1: 1]\n\nMAPPED_LIBRARIES:\n1-2 r\n";
        let account = parse(text).unwrap();
        assert_eq!(account.len(), 2);
        // Small ones stand for the rate each, a large one for itself.
        let small = account[&vec![0x10, 0x2a]];
        assert_eq!(small.samples, 2);
        assert!((262_144..264_000).contains(&small.bytes), "{small:?}");
        assert_eq!(account[&vec![0x10]], AllocationTotal { samples: 1, bytes: 10_485_760 });
        assert!(parse("heap_v2/131072\n@ 0x10\n  t*: nonsense\n").is_none());
        assert!(parse("").is_none());
    }

    #[test]
    fn a_stack_ends_with_who_wants_the_memory() {
        let boxed = "call_once (library/core/src/ops/function.rs)";
        let kept = ["start_thread", boxed, "value (core/src/record.rs)"];
        let ways =
            ["push (library/alloc/src/vec/mod.rs)", "alloc (library/alloc/src/alloc.rs)", "_rjem_malloc", "imalloc"];
        assert_eq!(who_allocates(kept.into_iter().chain(ways)), kept);
        let engine = ["start_thread", "rocksdb::Arena::AllocateNewBlock(unsigned long)"];
        assert_eq!(who_allocates(engine.into_iter().chain(["operator new(unsigned long)", "malloc"])), engine);
        assert_eq!(who_allocates([boxed, "malloc"].into_iter()), [boxed]);
        assert!(who_allocates(std::iter::empty()).is_empty());
    }

    #[test]
    fn every_byte_that_is_allocated_counts() {
        let before = allocated_bytes().unwrap();
        for size in [100, 10_000, 1_000_000] {
            for _ in 0..1_000 {
                drop(std::hint::black_box(vec![1_u8; size]));
            }
        }
        let counted = allocated_bytes().unwrap() - before;
        let asked = 1_000 * (100 + 10_000 + 1_000_000);
        // Classes are up to a quarter larger; a thread's last objects may not have been added.
        assert!(counted > asked / 100 * 98 && counted < asked / 100 * 130, "{counted} of {asked}");
    }
}
