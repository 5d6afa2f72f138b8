//! Processor time, as the kernel samples it: a perf event on each of the process's threads.
//!
//! The kernel follows frame pointers, which all of Rust's code, RocksDB and jemalloc are built with. libc and
//! libstdc++ are not: a function of theirs may hide its caller, or the rest of the stack. No code of the node runs for
//! a sample, no signal is sent, and nothing has to be safe in a handler.

use std::collections::HashMap;
use std::io::ErrorKind;

use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler, data};

use super::sample::{Profile, Refusal, SamplingWait};
use super::symbols::Symbols;

/// Records of one thread between two ticks: twenty stacks of a hundred frames are 16 KiB.
const RING_BYTES: usize = 32 << 10;
/// Different stacks that are kept: about 10 MiB.
const STACKS_MAX: usize = 32_768;
/// Threads that are sampled.
const THREADS_MAX: usize = 1024;
/// Ticks between two looks for new threads.
const LOOK_EVERY: u32 = 5;
/// Values from here on are no addresses, but name the origin of those that follow.
const CONTEXTS: u64 = 0_u64.wrapping_sub(4095);
/// `PERF_RECORD_MISC_CPUMODE_MASK` and `PERF_RECORD_MISC_KERNEL` of linux/perf_event.h.
const MODE_MASK: u16 = 7;
const MODE_KERNEL: u16 = 1;

struct Thread {
    name: String,
    sampler: Sampler,
}

struct Sampling {
    frequency: u32,
    /// Time in the kernel takes a right of its own.
    with_kernel: bool,
    threads: HashMap<i32, Thread>,
    counts: HashMap<Stack, u64>,
    samples: u64,
    lost: u64,
}

#[derive(PartialEq, Eq, Hash)]
struct Stack {
    thread: String,
    in_kernel: bool,
    /// The innermost first.
    addresses: Vec<u64>,
}

pub(super) fn take(frequency: u32, pass: &mut SamplingWait<'_>) -> Result<Profile, Refusal> {
    let mut sampling = Sampling::begin(frequency)?;
    let mut ticks = 0;
    let time = pass(&mut || {
        ticks += 1;
        sampling.collect();
        if ticks % LOOK_EVERY == 0 { sampling.attach() } else { Ok(()) }
    })?;
    sampling.collect();
    sampling.threads.clear();
    let note = if sampling.with_kernel {
        "time in the kernel is the frame [kernel]"
    } else {
        "time in the kernel is missing: the node may not see it (kernel.perf_event_paranoid, CAP_PERFMON)"
    };
    let Sampling { counts, samples, lost, .. } = sampling;
    let mut profile = Profile { samples, lost, time, note: note.to_owned(), ..Profile::default() };
    let mut symbols = Symbols::default();
    for (stack, count) in counts {
        let frames = symbols.frames(&stack.addresses);
        if !frames.is_whole {
            profile.truncated += count;
        }
        let kernel = stack.in_kernel.then_some("[kernel]");
        let names = std::iter::once(stack.thread.as_str()).chain(frames.names()).chain(kernel);
        profile.add(names, count);
    }
    Ok(profile)
}

impl Sampling {
    fn begin(frequency: u32) -> Result<Self, Refusal> {
        let mut sampling =
            Self { frequency, with_kernel: true, threads: HashMap::new(), counts: HashMap::new(), samples: 0, lost: 0 };
        sampling.attach()?;
        Ok(sampling)
    }

    /// Samples the threads that are not sampled yet.
    fn attach(&mut self) -> Result<(), Refusal> {
        let tasks = std::fs::read_dir("/proc/self/task").map_err(|error| Refusal::Impossible(error.to_string()))?;
        for task in tasks.flatten() {
            let Some(id) = task.file_name().to_str().and_then(|id| id.parse::<i32>().ok()) else { continue };
            if self.threads.len() >= THREADS_MAX || self.threads.contains_key(&id) {
                continue;
            }
            let Some(sampler) = self.open(id)? else { continue };
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            self.threads.insert(id, Thread { name: name.trim_end().to_owned(), sampler });
        }
        Ok(())
    }

    /// Nothing for a thread that has ended.
    fn open(&mut self, id: i32) -> Result<Option<Sampler>, Refusal> {
        let mut builder = Builder::new(Software::CPU_CLOCK);
        builder.observe_pid(id).sample_frequency(u64::from(self.frequency)).sample(SampleFlag::CALLCHAIN);
        builder.exclude_callchain_kernel(true).exclude_kernel(!self.with_kernel).enabled(true);
        match builder.build().and_then(|counter| counter.sampled(RING_BYTES)) {
            Ok(sampler) => Ok(Some(sampler)),
            // ESRCH
            Err(error) if error.raw_os_error() == Some(3) => Ok(None),
            Err(error) if error.kind() == ErrorKind::PermissionDenied && self.with_kernel => {
                self.with_kernel = false;
                self.open(id)
            }
            Err(error) => Err(Refusal::Impossible(format!(
                "the system lets this process sample none of its threads (perf_event_open: {error}): \
                 set kernel.perf_event_paranoid to 2 or less; a container's seccomp profile must allow it, too"
            ))),
        }
    }

    fn collect(&mut self) {
        for thread in self.threads.values_mut() {
            while let Some(record) = thread.sampler.next_record() {
                let in_kernel = record.misc() & MODE_MASK == MODE_KERNEL;
                match record.parse_record() {
                    Ok(data::Record::Sample(sample)) => {
                        let addresses = sample.callchain().unwrap_or_default().iter().copied();
                        let addresses = addresses.filter(|address| *address < CONTEXTS).collect();
                        let stack = Stack { thread: thread.name.clone(), in_kernel, addresses };
                        let room = self.counts.len() < STACKS_MAX;
                        match self.counts.get_mut(&stack) {
                            Some(count) => *count += 1,
                            None if room => drop(self.counts.insert(stack, 1)),
                            None => {
                                self.lost += 1;
                                continue;
                            }
                        }
                        self.samples += 1;
                    }
                    Ok(data::Record::Lost(lost)) => self.lost += lost.lost,
                    _ => {}
                }
            }
        }
    }
}
