//! One run: threads that send at a rate or as fast as answers come, and a collector of what they count.
//!
//! A run ends: at its end, at an interrupt (`stop`), or when its operations are done; what is under way then has its
//! limit left, after an interrupt a second at most, and no more. Measured is what was due after the warm-up and before
//! the end.

pub(crate) mod answer;
mod connection;
mod cost;
mod frame_heads;
pub(crate) mod outcomes;
mod pace;
mod scan_end;
mod worker;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use pace::Rate;

use crate::Error;
use crate::nodes::{Series, WatchedNodes};
use crate::numbers::{count, index};
use crate::record::{Interval, Tally};
use crate::target::Target;
use crate::workload::{
    Api, BATCH_MAX, BATCH_VALUE_BYTES_MAX, KeyOrder, Keys, Requests, ValueSize, Values, Workload, Writer,
};
use cost::MachineTicks;
use worker::{Timeline, Worker, WorkerJob, WorkerMessage};

/// For a connection to a target, before anything is measured.
const REACH_TIMEOUT: Duration = Duration::from_secs(5);
/// How often progress is reported.
const PROGRESS: Duration = Duration::from_millis(100);
/// Files that are open beside the connections: sockets to the nodes that are watched, and what it was started with.
const OTHER_FILES: u64 = 64;
/// Seconds that a thread may be ahead of the collector.
const NOTES_MAX: usize = 64;

/// What a run is to do.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// At least one; connections go to them in turn.
    pub targets: Vec<Target>,
    /// Where they keep keys.
    pub api: Api,
    /// What is sent.
    pub workload: Workload,
    /// In which order; if none is given, that of the workload, else uniform.
    pub key_order: Option<KeyOrder>,
    /// The first key's number.
    pub first_key: u64,
    /// 1 to [`crate::workload::KEYS_MAX`].
    pub keys: u64,
    /// Instead of those, these, in turn; at least one.
    pub only_keys: Option<Arc<[u64]>>,
    /// How long values are.
    pub value_size: ValueSize,
    /// Whether they can be compressed.
    pub compressible: bool,
    /// Answers required; the server's default if none.
    pub ack: Option<u8>,
    /// Replicas addressed; the server's default if none.
    pub from: Option<u8>,
    /// How fast.
    pub rate: Rate,
    /// Over all threads; at least as many as threads.
    pub connections: usize,
    /// At least one.
    pub threads: usize,
    /// Requests under way on one connection; at least one.
    pub pipeline: usize,
    /// Operations of a request, 1 to [`BATCH_MAX`]; over 1, each request is a batch, and rates are of these. A fill
    /// makes it less where its keys or its values ask for that.
    pub batch: usize,
    /// Of the measured time.
    pub duration: Duration,
    /// Before it.
    pub warmup: Duration,
    /// After it, in an open loop: while what was due before its end is still sent, and answers count as in time.
    pub grace: Duration,
    /// Limit of a request, from when it was sent.
    pub timeout: Duration,
    /// Operations to end after, if that is before the end: those of a fill, which has values of its own.
    pub operations_max: Option<u64>,
    /// Whether to watch the nodes' processor time and memory.
    pub watch: bool,
    /// What chance follows from.
    pub seed: u64,
}

impl RunPlan {
    /// The order of keys in force.
    #[must_use]
    pub fn order(&self) -> KeyOrder {
        self.key_order.or(self.workload.order()).unwrap_or(KeyOrder::Uniform)
    }

    /// Whether the options agree.
    ///
    /// # Errors
    /// [`Error::Usage`], with the reason.
    pub fn check(&self) -> Result<(), Error> {
        use crate::workload::{ClientOperation, KEYS_MAX};
        let usage = |text: &str| Err(Error::Usage(text.to_owned()));
        if self.targets.is_empty() || self.threads == 0 || self.pipeline == 0 || self.duration.is_zero() {
            return usage("targets, threads, pipeline and duration are at least one");
        }
        if self.connections < self.threads.max(self.targets.len()) {
            return usage("every thread and every target needs a connection: --connections is too few");
        }
        if self.keys == 0 || self.first_key + self.keys > KEYS_MAX {
            return usage("--keys is between 1 and 100000000");
        }
        let has_ranges = self.workload.has(ClientOperation::Range) || self.workload.has(ClientOperation::Scan);
        if has_ranges && !self.api.is_own() {
            return usage("ranges and scans are kvorum's own: they do not go with --path");
        }
        if self.order() == KeyOrder::Latest && self.workload.has(ClientOperation::Delete) {
            return usage("deletions do not go with the order `latest`");
        }
        if self.batch == 1 { Ok(()) } else { self.check_batch() }
    }

    fn check_batch(&self) -> Result<(), Error> {
        use crate::workload::ClientOperation::{Modify, Range, Scan};
        let usage = |text: &str| Err(Error::Usage(text.to_owned()));
        if !(1..=BATCH_MAX).contains(&self.batch) {
            return usage("--batch is between 1 and 1000");
        }
        if !self.api.is_own() {
            return usage("batches are kvorum's own: --batch does not go with --path");
        }
        if [Range, Scan, Modify].into_iter().any(|operation| self.workload.has(operation)) {
            let parts = "a batch has neither ranges, scans nor read-modify-writes";
            return usage(&format!("{parts}: --batch does not go with this workload"));
        }
        if count(self.batch) > self.keys {
            return usage("all keys of a batch differ: --batch is at most --keys");
        }
        if self.value_size.most().saturating_mul(count(self.batch)) > BATCH_VALUE_BYTES_MAX {
            return usage("the values of a batch have 4 MiB at most: make --batch or --value-size less");
        }
        Ok(())
    }
}

/// One second of the measured time.
#[derive(Clone, Debug)]
pub struct Second {
    /// Latencies of the answers that came in it, serialized as V2.
    pub histogram: Vec<u8>,
    /// Requests that succeeded.
    pub requests: u64,
    /// Requests that did not.
    pub errors: u64,
    /// In µs: p50, p90, p99 and the longest.
    pub latency_us: [u64; 4],
    /// As `histogram`, of what was answered 503.
    pub shed_histogram: Vec<u8>,
    /// How many were.
    pub shed: u64,
    /// In µs, of these: p99 and the longest.
    pub shed_us: [u64; 2],
    /// Requests sent in it.
    pub sent: u64,
    /// Requests due by its end, and not sent by then.
    pub unsent: u64,
    /// Part of the processors' time that this machine's host gave to others in it; none if the system does not show it.
    pub stolen_share: Option<f64>,
}

/// What a run counted.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// When it began.
    pub started: SystemTime,
    /// Of all threads.
    pub tally: Tally,
    /// In order; the last ones may lie behind the end, while late answers came.
    pub seconds: Vec<Second>,
    /// Time in which requests were due.
    pub measured: Duration,
    /// Operations of requests that succeeded, warm-up included.
    pub done: u64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// What the nodes used, if they were watched.
    pub(crate) nodes: Vec<Series>,
    /// Part of the processors' time that this machine's host gave to others; none if the system does not show it.
    pub stolen_share: Option<f64>,
    /// Keys whose write failed, where operations were counted; at most 100,000 of a thread.
    pub failed_keys: Vec<u64>,
}

impl RunOutcome {
    /// Of a run that begins now.
    pub(crate) fn nothing() -> Self {
        Self {
            started: SystemTime::now(),
            tally: Tally::default(),
            seconds: Vec::new(),
            measured: Duration::ZERO,
            done: 0,
            interrupted: false,
            nodes: Vec::new(),
            stolen_share: None,
            failed_keys: Vec::new(),
        }
    }

    /// Requests that succeeded in the measured time and the grace after it, per second of that time; an operation of
    /// two requests is one.
    #[must_use]
    pub fn rate_achieved(&self) -> f64 {
        self.per_second(self.tally.in_time)
    }

    /// The same of single operations, also of those in batches.
    #[must_use]
    pub fn operation_rate_achieved(&self) -> f64 {
        self.per_second(self.tally.operations_in_time)
    }

    fn per_second(&self, number: u64) -> f64 {
        crate::numbers::float(number) / self.measured.as_secs_f64().max(1e-9)
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct RunProgress {
    /// Since its begin, warm-up included.
    pub elapsed: Duration,
    /// Operations of requests that succeeded, warm-up included.
    pub done: u64,
}

/// Runs it, and calls `progress` ten times a second. Blocks. `stop` ends it early; the outcome is then of what there
/// was.
///
/// # Errors
/// [`Error::Usage`], [`Error::Unreachable`] before anything was sent, [`Error::System`].
pub fn run(plan: &RunPlan, stop: &Arc<AtomicBool>, progress: &mut dyn FnMut(RunProgress)) -> Result<RunOutcome, Error> {
    plan.check()?;
    allow_open_files(plan.connections)?;
    let addresses = plan.targets.iter().map(reach).collect::<Result<Vec<_>, _>>()?;
    let nodes = plan.watch.then(|| WatchedNodes::find(&plan.targets));
    let done = Arc::new(AtomicU64::new(0));
    let (notes, told) = sync_channel(NOTES_MAX * plan.threads);
    let (ready, readies) = sync_channel(plan.threads);
    thread::scope(|scope| {
        let mut starts = Vec::new();
        let mut workers = Vec::new();
        for job in jobs(plan, &addresses, stop, &done) {
            let (start, started) = sync_channel(1);
            starts.push(start);
            let (notes, ready) = (notes.clone(), ready.clone());
            workers.push(scope.spawn(move || work(job, notes, ready, &started)));
        }
        drop((notes, ready));
        let settled = settled(&readies, plan.threads, progress);
        let ticks = MachineTicks::now();
        let timeline = timeline(plan);
        for start in starts.iter().filter(|_| settled) {
            // A thread that is gone has failed, which joining it shows.
            let _ = start.send(timeline);
        }
        drop(starts);
        let started = SystemTime::now() + plan.warmup;
        // Where a thread has failed there is nothing to wait for.
        let watched = nodes.filter(|_| settled);
        let watcher = watched.map(|nodes| scope.spawn(move || nodes.watch(timeline.measure, timeline.end, stop)));
        let mut outcome = collect(plan, timeline, &told, &done, progress);
        drop(told);
        join(workers)?;
        outcome.nodes = watcher.map(|watcher| watcher.join().expect("a watcher does not panic")).unwrap_or_default();
        outcome.stolen_share = ticks.and_then(MachineTicks::stolen_until_now);
        outcome.started = started;
        outcome.interrupted = stop.load(Ordering::Relaxed);
        Ok(outcome)
    })
}

/// Waits for the threads' connections, and calls `progress` meanwhile; whether all threads came to that.
fn settled(readies: &Receiver<()>, threads: usize, progress: &mut dyn FnMut(RunProgress)) -> bool {
    let mut settled = 0;
    while settled < threads {
        match readies.recv_timeout(PROGRESS) {
            Ok(()) => settled += 1,
            Err(RecvTimeoutError::Timeout) => progress(RunProgress { elapsed: Duration::ZERO, done: 0 }),
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
    true
}

fn join(workers: Vec<ScopedJoinHandle<'_, std::io::Result<()>>>) -> Result<(), Error> {
    for worker in workers {
        let ended = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended.map_err(Error::system("the load generator"))?;
    }
    Ok(())
}

fn timeline(plan: &RunPlan) -> Timeline {
    let begin = Instant::now();
    let measure = begin + plan.warmup;
    let end = measure + plan.duration;
    let grace = if plan.rate == Rate::Max { Duration::ZERO } else { plan.grace };
    Timeline { begin, measure, end, last: end + grace }
}

fn work(
    job: WorkerJob,
    notes: SyncSender<(u64, WorkerMessage)>,
    ready: SyncSender<()>,
    started: &Receiver<Timeline>,
) -> std::io::Result<()> {
    let mut worker = Worker::new(job, notes)?;
    worker.settle()?;
    let _ = ready.send(());
    // Shows the count of ready threads that there will be no more.
    drop(ready);
    // Without a timeline another thread has failed: there is nothing to do.
    match started.recv() {
        Ok(timeline) => worker.run(timeline),
        Err(_) => Ok(()),
    }
}

fn jobs(plan: &RunPlan, addresses: &[SocketAddr], stop: &Arc<AtomicBool>, done: &Arc<AtomicU64>) -> Vec<WorkerJob> {
    let keys = match &plan.only_keys {
        Some(only) => Keys::listed(only.clone()),
        None => Keys::new(plan.order(), plan.first_key, plan.keys),
    };
    let writer = if plan.operations_max.is_some() { Writer::Fill } else { Writer::Run };
    let values = Arc::new(Values::new(plan.value_size, plan.compressible, writer));
    let requests = plan.targets.iter().map(|target| Requests::new(target, &plan.api, plan.ack, plan.from));
    let requests = Arc::new(requests.collect::<Vec<_>>());
    let all: Vec<(usize, SocketAddr)> = addresses.iter().copied().enumerate().cycle().take(plan.connections).collect();
    let threads = count(plan.threads);
    (0..plan.threads)
        .map(|thread| {
            // Neighbours, so that each thread has connections to every target.
            let bound = |thread: usize| thread * plan.connections / plan.threads;
            let number = count(thread);
            WorkerJob {
                thread: number,
                threads,
                rate: plan.rate,
                pipeline: plan.pipeline,
                batch: plan.batch,
                timeout: plan.timeout,
                operations_max: plan.operations_max.map(|most| most.saturating_sub(number).div_ceil(threads)),
                connections: all.get(bound(thread)..bound(thread + 1)).unwrap_or_default().to_vec(),
                requests: requests.clone(),
                workload: plan.workload.clone(),
                values: values.clone(),
                keys: keys.source(number, threads, plan.seed),
                stop: stop.clone(),
                done: done.clone(),
            }
        })
        .collect()
}

/// The first address of a target that takes a connection.
pub(crate) fn reach(target: &Target) -> Result<SocketAddr, Error> {
    let mut last = None;
    for address in target.addresses()? {
        match TcpStream::connect_timeout(&address, REACH_TIMEOUT) {
            Ok(_) => return Ok(address),
            Err(error) => last = Some(error),
        }
    }
    let cause = last.expect("a target has an address");
    Err(Error::Unreachable { target: target.to_string(), cause })
}

/// As many as the system allows: each connection is one, and the tool and its user have some of their own.
pub(crate) fn allow_open_files(connections: usize) -> Result<(), Error> {
    let limit = getrlimit(Resource::Nofile);
    // Where it may not be raised it stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if count(connections) + OTHER_FILES <= most {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "--connections {connections}: this process may have {most} files open (`ulimit -Hn`), {OTHER_FILES} of them \
         for something else"
    )))
}

/// Seconds that not every thread has reported yet.
#[derive(Default)]
struct PendingSeconds {
    first: usize,
    waiting: VecDeque<(Interval, usize)>,
    finished: Vec<Second>,
    /// At the end of the last one that is finished.
    ticks: Option<MachineTicks>,
}

impl PendingSeconds {
    fn take(&mut self, second: usize, interval: &Interval) {
        let place = second - self.first;
        while self.waiting.len() <= place {
            self.waiting.push_back((Interval::default(), 0));
        }
        if let Some((sum, told)) = self.waiting.get_mut(place) {
            sum.add(interval);
            *told += 1;
        }
    }

    fn finish(&mut self, threads: usize) {
        while let Some((interval, _)) = self.waiting.pop_front_if(|(_, told)| *told >= threads) {
            self.first += 1;
            let now = MachineTicks::now();
            let stolen_share = now.zip(self.ticks).map(|(now, then)| now.stolen_since(then));
            self.ticks = now;
            self.finished.push(summary(&interval, stolen_share));
        }
    }
}

pub(crate) fn summary(interval: &Interval, stolen_share: Option<f64>) -> Second {
    let Interval { latency, shed, errors, sent, unsent } = interval;
    let at = |of: &Histogram<u64>, quantile| if of.is_empty() { 0 } else { of.value_at_quantile(quantile) };
    Second {
        histogram: serialized(latency),
        requests: latency.len(),
        errors: *errors,
        latency_us: [at(latency, 0.5), at(latency, 0.9), at(latency, 0.99), latency.max()],
        shed_histogram: serialized(shed),
        shed: shed.len(),
        shed_us: [at(shed, 0.99), shed.max()],
        sent: *sent,
        unsent: *unsent,
        stolen_share,
    }
}

fn serialized(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).expect("a vector takes everything");
    bytes
}

fn collect(
    plan: &RunPlan,
    timeline: Timeline,
    told: &Receiver<(u64, WorkerMessage)>,
    done: &AtomicU64,
    progress: &mut dyn FnMut(RunProgress),
) -> RunOutcome {
    let mut tally = Tally::default();
    let mut failed_keys = Vec::new();
    let mut pending = PendingSeconds::default();
    let mut seconds_of = vec![0_usize; plan.threads];
    let mut end = timeline.measure;
    loop {
        if pending.ticks.is_none() && Instant::now() >= timeline.measure {
            pending.ticks = MachineTicks::now();
        }
        match told.recv_timeout(PROGRESS) {
            Ok((thread, WorkerMessage::Second(interval))) => {
                if let Some(second) = seconds_of.get_mut(index(thread)) {
                    pending.take(*second, &interval);
                    *second += 1;
                }
                pending.finish(plan.threads);
            }
            Ok((_, WorkerMessage::Done(counted, keys, ended))) => {
                tally.add(&counted);
                failed_keys.extend(keys);
                end = end.max(ended);
            }
            Err(RecvTimeoutError::Timeout) => {
                progress(RunProgress { elapsed: timeline.begin.elapsed(), done: done.load(Ordering::Relaxed) });
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    pending.finish(0);
    let measured = end - timeline.measure;
    // Behind the end a second in which nothing more came is none; before it, the target was silent.
    let last = pending.finished.iter().rposition(|second| second.requests + second.errors > 0);
    pending.finished.truncate(last.map_or(0, |last| last + 1).max(index(measured.as_secs())));
    let done = done.load(Ordering::Relaxed);
    RunOutcome { tally, seconds: pending.finished, measured, done, failed_keys, ..RunOutcome::nothing() }
}
