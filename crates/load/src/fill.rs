//! Filling a store to a size, so that it can be interrupted and taken up again.
//!
//! Keys are written in order, in *stages* whose borders follow from the values' size alone. A stage begins only when
//! everything before it was acknowledged; so where the first key of a stage can be read, all stages before it are
//! complete, and a fill that is taken up again finds its place by bisection, without a note anywhere. Values follow
//! from their keys, and no run writes the same: at the end a sample is read back and compared.
//!
//! Where all targets know batches, keys are written in these. The keys of a batch that fails are all written again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;
use crate::client::Client;
use crate::numbers::{count, index};
use crate::random::Random;
use crate::run::outcomes::OutcomeParser;
use crate::run::{Rate, RunOutcome, RunPlan, reach, run};
use crate::target::Target;
use crate::workload::{
    BATCH_VALUE_BYTES_MAX, ClientOperation, KEYS_MAX, KeyOrder, OperationBatch, Requests, Values, Writer,
};

/// Keys of a request, if nothing else is asked for.
pub const FILL_BATCH: usize = 64;
/// Bytes of values in a stage, within the bounds of its keys.
const STAGE_BYTES: u64 = 64 << 20;
const STAGE_KEYS_MIN: u64 = 1_000;
const STAGE_KEYS_MAX: u64 = 100_000;
/// Keys that are read back.
const SAMPLE: u64 = 1_000;
/// How often the keys are written again whose write failed, and the pause before the n-th time, times n.
const RETRIES: u32 = 10;
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How soon a fill that waits notices that it is stopped.
const STOP_POLL: Duration = Duration::from_millis(20);
/// A stage has no time limit of its own: while it gets on, it goes on.
const STAGE_TIME: Duration = Duration::from_secs(24 * 3600);
/// It ends if nothing was written for twice as long as a request may take, and this.
const STALL: Duration = Duration::from_secs(5);

/// What a fill did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// All keys that are there now; if it was interrupted, those of the stages that are whole.
    pub keys: u64,
    /// Where it began: 0, or where an earlier one had come to.
    pub from: u64,
    /// Keys that were read back and were right.
    pub sampled: u64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

/// How many keys come to so many bytes of values.
///
/// # Errors
/// [`Error::Usage`] if that is none, or too many.
pub fn keys_for(plan: &RunPlan, bytes: u64) -> Result<u64, Error> {
    if plan.value_size.most() == 0 {
        return Err(Error::Usage("values without bytes never come to a size: give --keys instead of --size".into()));
    }
    let keys = bytes.div_ceil(plan.value_size.mean().max(1));
    if (1..=KEYS_MAX).contains(&keys) {
        return Ok(keys);
    }
    Err(Error::Usage(format!("{bytes} bytes are {keys} values of {} bytes: 1 to {KEYS_MAX} can be", plan.value_size)))
}

/// Writes the plan's keys, as fast as its connections can, in batches of at most the plan's: smaller ones of large
/// values, none where a target does not know them. `progress` gets how many keys there are. Blocks.
///
/// # Errors
/// Those of [`run()`], also where targets go away meanwhile; [`Error::Refused`] if keys cannot be written or are not
/// read back as they were written.
pub fn fill(plan: &RunPlan, stop: &Arc<AtomicBool>, progress: &mut dyn FnMut(u64)) -> Result<Filled, Error> {
    let plan = &RunPlan { batch: batch(plan), ..plan.clone() };
    // What is written is looked at with each stage, of which batches are no larger.
    RunPlan { batch: 1, ..plan.clone() }.check()?;
    let mut store = KeyReader::new(plan)?;
    let stage = (STAGE_BYTES / plan.value_size.mean().max(1)).clamp(STAGE_KEYS_MIN, STAGE_KEYS_MAX);
    let begun = store.stages_begun(plan.keys.div_ceil(stage), stage, stop)?;
    let mut from = stage * begun.saturating_sub(1);
    let is_single = plan.batch == 1 || stop.load(Ordering::Relaxed) || !store.know_batches(plan)?;
    let plan = &RunPlan { batch: if is_single { 1 } else { plan.batch }, ..plan.clone() };
    loop {
        progress(from);
        let keys = write_stages(plan, stage, from, stop, progress)?;
        if keys < plan.keys {
            return Ok(Filled { keys, from, sampled: 0, interrupted: true });
        }
        match store.sample(plan, stop) {
            // What was there were keys of something else.
            Err(Error::Refused(_)) if from > 0 => from = 0,
            sampled => return Ok(Filled { keys, from, sampled: sampled?, interrupted: stop.load(Ordering::Relaxed) }),
        }
    }
}

/// How many keys a request has at most.
fn batch(plan: &RunPlan) -> usize {
    let most = index(BATCH_VALUE_BYTES_MAX / plan.value_size.most().max(1)).max(1);
    if plan.api.is_own() { plan.batch.min(most) } else { 1 }
}

/// How far it came: less than all keys if it was stopped.
fn write_stages(
    plan: &RunPlan,
    stage: u64,
    from: u64,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, Error> {
    let mut at = from;
    while at < plan.keys {
        let keys = stage.min(plan.keys - at);
        let stage_plan = RunPlan { first_key: at, keys, ..puts(plan) };
        write_all(stage_plan, stop, &mut |done| progress(at + done))?;
        if stop.load(Ordering::Relaxed) {
            return Ok(at);
        }
        at += keys;
        progress(at);
    }
    Ok(at)
}

/// The plan that writes each of its keys once.
fn puts(plan: &RunPlan) -> RunPlan {
    RunPlan {
        workload: ClientOperation::Put.name().parse().expect("a workload of its own"),
        key_order: Some(KeyOrder::Sequential),
        rate: Rate::Max,
        duration: STAGE_TIME,
        warmup: Duration::ZERO,
        watch: false,
        ..plan.clone()
    }
}

/// Writes all keys of a plan, some of them several times if need be.
fn write_all(mut plan: RunPlan, stop: &Arc<AtomicBool>, progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
    let (all, batch) = (plan.keys, plan.batch);
    for attempt in 1..=RETRIES + 1 {
        plan.operations_max = Some(plan.keys);
        // Smaller ones each time: what one key fails with is that key's alone in the end.
        plan.batch = (batch >> (attempt - 1)).clamp(1, index(plan.keys));
        let before = all - plan.keys;
        let mut stall = StallDetector::new(&plan);
        let ends = stall.ends.clone();
        let outcome = run(&plan, &ends, &mut |now| {
            stall.look(now.done, stop);
            progress(before + now.done.min(plan.keys));
        })?;
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let ended = outcome.done + count(outcome.failed_keys.len());
        if ends.load(Ordering::Relaxed) && ended < plan.keys {
            return Err(stall.error(&plan, &outcome));
        }
        if outcome.failed_keys.is_empty() {
            return Ok(());
        }
        if attempt > RETRIES {
            let (keys, why) = (outcome.failed_keys.len(), failures(&outcome));
            return Err(Error::Refused(format!("{keys} keys could not be written, {RETRIES} times over ({why})")));
        }
        if !pause(RETRY_PAUSE * attempt, stop) {
            return Ok(());
        }
        plan.keys = count(outcome.failed_keys.len());
        plan.only_keys = Some(outcome.failed_keys.into());
    }
    Ok(())
}

/// Waits so long: whether it was not stopped meanwhile.
fn pause(time: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        thread::sleep(STOP_POLL);
    }
    !stop.load(Ordering::Relaxed)
}

fn failures(outcome: &RunOutcome) -> String {
    let tally = &outcome.tally;
    let refused = tally.refused.iter().map(|(status, count)| format!("{status}: {count}"));
    let failed = tally.failures.iter().map(|(failure, count)| format!("{}: {count}", failure.name()));
    let why: Vec<String> = refused.chain(failed).chain([format!("timeouts: {}", tally.timeouts)]).collect();
    why.join(", ")
}

/// Ends a run that writes nothing any more: what was never sent has no timeout.
struct StallDetector {
    limit: Duration,
    done: u64,
    /// When something was written last, or this was looked at first.
    since: Option<Instant>,
    ends: Arc<AtomicBool>,
}

impl StallDetector {
    fn new(plan: &RunPlan) -> Self {
        Self { limit: plan.timeout * 2 + STALL, done: 0, since: None, ends: Arc::default() }
    }

    /// Ends it, too, where the fill is stopped.
    fn look(&mut self, done: u64, stop: &AtomicBool) {
        let now = Instant::now();
        let since = if done > self.done { now } else { self.since.unwrap_or(now) };
        (self.done, self.since) = (done, Some(since));
        if stop.load(Ordering::Relaxed) || now.duration_since(since) > self.limit {
            self.ends.store(true, Ordering::Relaxed);
        }
    }

    /// The target is out of reach, or takes requests and does nothing: no word about the keys that are there.
    fn error(&self, plan: &RunPlan, outcome: &RunOutcome) -> Error {
        if let Some(error) = plan.targets.iter().find_map(|target| reach(target).err()) {
            return error;
        }
        let (limit, why) = (self.limit.as_secs(), failures(outcome));
        let cause = io::Error::other(format!("nothing was written for {limit} s ({why})"));
        let targets: Vec<String> = plan.targets.iter().map(ToString::to_string).collect();
        Error::Unreachable { target: targets.join(", "), cause }
    }
}

/// Reads keys, one at a time.
struct KeyReader {
    target: Target,
    client: Client,
    requests: Requests,
    values: Values,
}

impl KeyReader {
    fn new(plan: &RunPlan) -> Result<Self, Error> {
        let target = plan.targets.first().ok_or_else(|| Error::Usage("a target is needed".into()))?;
        Ok(Self {
            target: target.clone(),
            client: Client::new(target.clone(), plan.timeout),
            requests: Requests::new(target, &plan.api, plan.ack, plan.from),
            values: Values::new(plan.value_size, plan.compressible, Writer::Fill),
        })
    }

    /// Whether a key has the value that a fill gives it, or none if it is stopped. A server without an answer is asked
    /// again.
    fn has(&mut self, key: u64, stop: &AtomicBool) -> Result<Option<bool>, Error> {
        let mut page = self.client.get(&self.requests.path(key))?;
        for attempt in 1..=RETRIES {
            if page.status < 500 {
                return Ok(Some(page.status == 200 && page.body == self.values.of(key)));
            }
            if !pause(RETRY_PAUSE * attempt, stop) {
                return Ok(None);
            }
            page = self.client.get(&self.requests.path(key))?;
        }
        let cause = io::Error::other(format!("key {key} could not be read, {RETRIES} times over ({})", page.status));
        Err(Error::Unreachable { target: self.target.to_string(), cause })
    }

    /// Whether all targets know batches. One that fails, knows: it is busy, and a cluster is not filled with single
    /// writes for that.
    fn know_batches(&mut self, plan: &RunPlan) -> Result<bool, Error> {
        let mut batch = OperationBatch::new(1);
        batch.push(ClientOperation::Get, plan.first_key, &self.values);
        for target in &plan.targets {
            let mut request = Vec::new();
            Requests::new(target, &plan.api, plan.ack, plan.from).batch(&mut request, batch.body());
            let page = if *target == self.target {
                self.client.ask(&request)
            } else {
                Client::new(target.clone(), plan.timeout).ask(&request)
            }?;
            let mut outcomes = OutcomeParser::default();
            outcomes.take(&page.body);
            let is_one = page.status == 200 && outcomes.statuses().is_some_and(|statuses| statuses.len() == 1);
            if !is_one && page.status < 500 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How many stages have their first key, or so many at least if it is stopped.
    fn stages_begun(&mut self, stages: u64, stage: u64, stop: &AtomicBool) -> Result<u64, Error> {
        let (mut begun, mut not) = (0, stages);
        while begun < not && !stop.load(Ordering::Relaxed) {
            let middle = begun.midpoint(not);
            match self.has(middle * stage, stop)? {
                Some(true) => begun = middle + 1,
                Some(false) => not = middle,
                None => break,
            }
        }
        Ok(begun)
    }

    /// Reads some keys back, others with each seed: how many, until it is stopped.
    fn sample(&mut self, plan: &RunPlan, stop: &AtomicBool) -> Result<u64, Error> {
        let (keys, mut random) = (plan.keys, Random::new(plan.seed));
        let (mut read, mut wrong) = (0, 0);
        // Fewer keys than that are all read.
        while read < SAMPLE.min(keys) && !stop.load(Ordering::Relaxed) {
            let key = if keys <= SAMPLE { read } else { random.below(keys) };
            let Some(is_right) = self.has(key, stop)? else { break };
            wrong += u64::from(!is_right);
            read += 1;
        }
        if wrong > 0 {
            return Err(Error::Refused(format!("{wrong} of {read} keys are not read back as they were written")));
        }
        Ok(read)
    }
}
