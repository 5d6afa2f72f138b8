//! `bench`: the load tool's command line. The work is that of `kvorum-load`.

pub(crate) mod args;
mod lines;
mod scenario;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use args::{BenchCommand, CompareArgs, FillArgs, KneeArgs, ProgressForm, RunArgs, SoakArgs};
use kvorum_load::compare::{
    COMPARISON_FILE, Comparison, PairedRuns, Pairing, Side, compare as compare_runs, compare_saved, kill_server, live,
};
use kvorum_load::fill::{fill as fill_load, keys_for};
use kvorum_load::knee::{Effort, Knee, SearchInput, SustainedKnee, knee as find_knee};
use kvorum_load::report::{Document, Spectrum, save, text, told_debt, told_ms, write_json};
use kvorum_load::run::{Rate, RunPlan, run as run_load};
use kvorum_load::soak::{GOODPUT_FROM_S, Soak, soak as judge_soak};
use rustix::fs::Access;
use tokio::signal::unix::{SignalKind, signal};

use lines::{Lines, bar, say, tell_run, tell_turn, warn};

use crate::outcome::{ExitOutcome, Unreachable};

/// `kvorum bench`
pub(crate) fn bench(command: &BenchCommand, commit: &str) -> Result<ExitOutcome> {
    let stop = stop_on_signals()?;
    if let Some(parent) = command.parent() {
        let stop = stop.clone();
        parent.at_its_end(move || stop.store(true, Ordering::Relaxed))?;
    }
    let done = match command {
        BenchCommand::Run(args) => run(args, &stop),
        BenchCommand::Fill(args) => fill(args, &stop),
        BenchCommand::Knee(args) => knee(args, &stop),
        BenchCommand::Soak(args) => soak(args, &stop),
        BenchCommand::Compare(args) => compare(args, &stop),
        BenchCommand::Scenario(args) => scenario::scenario(args, &stop, commit),
    };
    done.map_err(|error| match error.downcast::<kvorum_load::Error>() {
        Ok(kvorum_load::Error::Unreachable { target, cause }) => Unreachable { url: target, cause }.into(),
        Ok(kvorum_load::Error::Refused(why)) => {
            Unreachable { url: "the target".into(), cause: io::Error::other(why) }.into()
        }
        Ok(other) => other.into(),
        Err(error) => error,
    })
}

/// Set by the first Ctrl-C, SIGTERM or SIGHUP: what runs ends and is reported. The second one ends the process, unless
/// it is SIGHUP: a closed terminal sends it from the kernel and again from the shell.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _inside = runtime.enter();
        let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup())).transpose()?;
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, hangup)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                let may_end = tokio::select! {
                    _ = interrupt.recv() => true,
                    _ = terminate.recv() => true,
                    Some(()) = async { hangup.as_mut()?.recv().await } => false,
                };
                if asked.swap(true, Ordering::Relaxed) && may_end {
                    kill_server();
                    std::process::exit(130);
                }
            }
        });
    });
    Ok(stop)
}

/// Whether this process was started to outlive its terminal, with `nohup`.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    // The lowest bit is signal 1.
    ignored.is_some_and(|ignored| ignored & 1 == 1)
}

fn run(args: &RunArgs, stop: &Arc<AtomicBool>) -> Result<ExitOutcome> {
    let plan = args.load.plan(args.rate);
    let document = measured(&plan, args.out.as_deref(), (args.latency, args.load.progress), stop, |_, _| None)?;
    Ok(if document.is_some() { ExitOutcome::Done } else { ExitOutcome::NotFound })
}

fn soak(args: &SoakArgs, stop: &Arc<AtomicBool>) -> Result<ExitOutcome> {
    let plan = args.load.plan(Rate::PerSecond(args.rate));
    if args.goodput.is_some() && plan.duration.as_secs_f64() < GOODPUT_FROM_S + 10.0 {
        let why = "--goodput is of every 10 s after the first 30: --duration is too short";
        return Err(kvorum_load::Error::Usage(why.into()).into());
    }
    let judge = |outcome: &_, document: &_| Some(judge_soak(&plan, outcome, document, &args.objective, args.goodput));
    let document = measured(&plan, args.out.as_deref(), (false, args.load.progress), stop, judge)?;
    let passed = document.is_some_and(|run| !run.interrupted && run.soak.is_some_and(|soak| soak.passed));
    Ok(if passed { ExitOutcome::Done } else { ExitOutcome::NotFound })
}

/// Runs, prints and saves; none if nothing was measured before an interrupt.
fn measured(
    plan: &RunPlan,
    out: Option<&Path>,
    (spectrum, form): (bool, ProgressForm),
    stop: &Arc<AtomicBool>,
    judge: impl FnOnce(&kvorum_load::run::RunOutcome, &Document) -> Option<Soak>,
) -> Result<Option<Document>> {
    make_dir(out)?;
    let seconds = plan.duration.as_secs() + plan.warmup.as_secs();
    let bar = bar(seconds, "{wide_bar} {pos}/{len} s  {msg}");
    let mut told_s = None;
    let outcome = run_load(plan, stop, &mut |progress| {
        if form == ProgressForm::Json {
            tell_run(progress, seconds, &mut told_s);
        }
        bar.set_position(progress.elapsed.as_secs());
        bar.set_message(format!("{} requests", progress.done));
    })?;
    bar.finish_and_clear();
    let mut document = Document::new(plan, &outcome);
    document.soak = judge(&outcome, &document);
    let told = write!(
        io::stdout(),
        "{}",
        text(plan, &outcome, &document, if spectrum { Spectrum::Shown } else { Spectrum::Hidden })
    );
    if outcome.interrupted && document.requests + document.unanswered + document.failures() == 0 {
        // Of nothing there is nothing to keep in the place of an earlier run.
        return told.map(|()| None).map_err(Into::into);
    }
    // Also where the text is read no more.
    if let Some(dir) = out {
        save(dir, &outcome, &document)?;
    }
    told?;
    Ok(Some(document))
}

/// Where a report shall go, before the work that it is of: a path that cannot be is found out then.
fn make_dir(dir: Option<&Path>) -> Result<()> {
    let made = |dir: &Path| {
        std::fs::create_dir_all(dir)?;
        rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from)
    };
    dir.map_or(Ok(()), |dir| made(dir).with_context(|| dir.display().to_string()))
}

fn fill(args: &FillArgs, stop: &Arc<AtomicBool>) -> Result<ExitOutcome> {
    let mut plan = args.target.plan();
    if let Some(bytes) = args.size {
        plan.keys = keys_for(&plan, bytes)?;
    }
    // Before anything is made of numbers that may be too large.
    plan.check()?;
    plan.batch = args.batch;
    let mean = plan.value_size.mean();
    let style = "{wide_bar} {bytes}/{total_bytes}  {bytes_per_sec}  ETA {eta}";
    let bar = bar(plan.keys * mean.max(1), style);
    let begin = Instant::now();
    let mut there = None;
    let filled = fill_load(&plan, stop, &mut |keys| {
        bar.set_position(keys * mean.max(1));
        // What an earlier one wrote took none of this one's time.
        if there.replace(keys).is_none() {
            bar.reset_eta();
        }
    });
    bar.finish_and_clear();
    let filled = filled.inspect_err(|_| {
        if let Some(there) = there.filter(|keys| *keys > 0) {
            warn(format_args!("about {there} keys were written: once the target takes more, the same command goes on"));
        }
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let mut out = io::stdout();
    if filled.interrupted && filled.keys < plan.keys {
        let (keys, written) = (filled.keys, there.unwrap_or(0).saturating_sub(filled.from));
        writeln!(out, "interrupted: about {written} keys of {mean} bytes were written in {seconds:.1} s")?;
        writeln!(out, "{keys} are in stages that are whole: the same command goes on behind these")?;
        return Ok(ExitOutcome::NotFound);
    }
    let written = filled.keys - filled.from;
    let begun = if filled.from == 0 { String::new() } else { format!(" ({} were there already)", filled.from) };
    writeln!(out, "{} keys of {mean} bytes{begun}; {written} written in {seconds:.1} s", filled.keys)?;
    if filled.interrupted {
        writeln!(out, "interrupted: not all of the sample was read back; the same command does that")?;
        return Ok(ExitOutcome::NotFound);
    }
    writeln!(out, "{} keys were read back as they were written; to use all: --keys {}", filled.sampled, filled.keys)?;
    Ok(ExitOutcome::Done)
}

fn knee(args: &KneeArgs, stop: &Arc<AtomicBool>) -> Result<ExitOutcome> {
    let plan = args.load.plan(args.rate);
    let (objective, dir) = (&args.objective, args.out.as_deref());
    make_dir(dir)?;
    let hunt = SearchInput { plan: &plan, objective, effort: Effort::Whole, sustained: args.sustained, dir, stop };
    let (knee, searched) = find_knee(&hunt, &mut Lines(args.load.progress));
    // Also of a search that failed on its way, or cannot be written.
    let told = if searched.is_err() && knee.probes.is_empty() { Ok(()) } else { tell_knee(&knee, searched.is_ok()) };
    if knee.earlier_stays {
        say(format_args!("The search that was saved there before has a knee, and stays"));
    }
    searched?;
    told?;
    let is_sustained = knee.sustained_knee.as_ref().is_none_or(|knee| knee.rate.is_some());
    let is_one = knee.knee_rate.is_some() && knee.half.as_ref().is_none_or(|half| half.missed.is_none());
    let is_one = is_one && is_sustained;
    Ok(if is_one && !knee.interrupted { ExitOutcome::Done } else { ExitOutcome::NotFound })
}

fn tell_knee(knee: &Knee, is_whole: bool) -> io::Result<()> {
    let mut out = io::stdout();
    if let (Some(rate), Some(latency)) = (knee.knee_rate, &knee.latency_ms) {
        writeln!(out, "Knee: {rate}/s under {}: p50 {:.2} ms, p99 {:.2} ms", knee.objective, latency.p50, latency.p99)?;
    } else {
        let none = match (knee.interrupted, is_whole) {
            (true, _) => "Interrupted before the knee was found",
            (false, true) => "No knee: not even 10/s is sustained",
            (false, false) => "No knee was found",
        };
        writeln!(out, "{none}")?;
    }
    if let Some(half) = &knee.half {
        let latency = &half.latency_ms;
        let missed =
            half.missed.as_ref().map(|why| format!(": MISSED, {why}; the knee is not one")).unwrap_or_default();
        let (p50, p99) = (told_ms(latency.p50), told_ms(latency.p99));
        writeln!(out, "At half of it, {}/s: p50 {p50}, p99 {p99}{missed}", half.rate)?;
    }
    match &knee.sustained_knee {
        Some(sustained) => tell_sustained(&mut out, sustained)?,
        None if knee.sustained == Some(false) => {
            writeln!(out, "Debt was still GROWING there: this knee is not sustained; --sustained finds one that is")?;
        }
        None => {}
    }
    if let Some(law) = &knee.scalability {
        writeln!(out, "What bends it (R² {:.3}): {}", law.r_squared, law.verdict)?;
    }
    if let Some(why) = &knee.generator_limit {
        writeln!(out, "The GENERATOR ended the search, not the target: {why}")?;
    }
    if let Some(hint) = &knee.hint {
        writeln!(out, "{hint}")?;
    }
    if knee.interrupted && knee.knee_rate.is_some() {
        writeln!(out, "Interrupted: this is what there was until then")?;
    }
    Ok(())
}

fn tell_sustained(out: &mut io::Stdout, knee: &SustainedKnee) -> io::Result<()> {
    let (Some(rate), Some(latency)) = (knee.rate, &knee.latency_ms) else {
        return writeln!(out, "No sustained knee was found that holds for {:.0} s", knee.seconds);
    };
    let debt = if knee.debt_bounded.is_some() { "bounded debt" } else { "debt that is NOT KNOWN" };
    let (p50, p99) = (told_ms(latency.p50), told_ms(latency.p99));
    writeln!(out, "Sustained knee: {rate}/s for {:.0} s with {debt}: p50 {p50}, p99 {p99}", knee.seconds)?;
    let worst = knee.windows.iter().map(|window| window.latency_ms.p99).fold(f64::NAN, f64::max);
    writeln!(out, "  the worst of {} windows of 10 s has a p99 of {}", knee.windows.len(), told_ms(worst))?;
    for node in &knee.debt {
        let (last, most) = (told_debt(node.debt.last), told_debt(node.debt.most));
        writeln!(out, "  {}: pending, level 0, memtables {last} at the end, {most} at the most", node.url)?;
    }
    Ok(())
}

fn compare(args: &CompareArgs, stop: &Arc<AtomicBool>) -> Result<ExitOutcome> {
    args.check()?;
    make_dir(args.out.as_deref())?;
    if let (Side::Saved(a), Side::Saved(b)) = (&args.a, &args.b) {
        return match compare_saved(a, b) {
            // No target was asked for anything, and none has failed.
            Err(kvorum_load::Error::Refused(why)) => {
                warn(format_args!("{why}"));
                Ok(ExitOutcome::Refused)
            }
            compared => tell(&compared?, args),
        };
    }
    let missing = || format!("--rate is needed to compare what is live; `{}` is no directory of saved runs", args.a);
    let rate = args.rate.with_context(missing)?;
    let plan = args.load.plan(rate);
    let contest = PairedRuns { plan: &plan, pairs: args.pairs, dir: args.out.as_deref(), stop };
    let ([a, b], ended) = live(&contest, &args.a, &args.b, &mut |turn| tell_turn(turn, args.load.progress));
    let interrupted = stop.load(Ordering::Relaxed);
    let told = if a.is_empty() {
        if interrupted {
            say(format_args!("Interrupted before the first pair was whole"));
        }
        Ok(ExitOutcome::Done)
    } else {
        let mut comparison = compare_runs([&args.a.to_string(), &args.b.to_string()], &a, &b, Pairing::Pairs);
        if interrupted {
            comparison.doubts.push(format!("Interrupted after {} of {} pairs", a.len(), args.pairs));
        }
        tell(&comparison, args)
    };
    ended?;
    told.map(|told| if interrupted { ExitOutcome::NotFound } else { told })
}

fn tell(comparison: &Comparison, args: &CompareArgs) -> Result<ExitOutcome> {
    let told = write!(io::stdout(), "{}", comparison.text());
    if let Some(dir) = &args.out {
        write_json(&dir.join(COMPARISON_FILE), comparison)?;
    }
    told?;
    Ok(ExitOutcome::Done)
}
