//! `bench`: the load tool's command line. The work is that of `kvorum-load`.

pub(crate) mod args;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use kvorum_load::report::{Document, text};
use kvorum_load::run::run as run_load;
use tokio::signal::unix::{SignalKind, signal};

use crate::outcome::{Outcome, Unreachable};
use args::{BenchCommand, RunArgs};

/// `kvorum bench`
pub(crate) fn bench(command: &BenchCommand) -> Result<Outcome> {
    let stop = stop_on_signals()?;
    let done = match command {
        BenchCommand::Run(args) => run(args, &stop),
    };
    done.map_err(|error| match error.downcast::<kvorum_load::Error>() {
        Ok(kvorum_load::Error::Unreachable { target, cause }) => Unreachable { url: target, cause }.into(),
        Ok(other) => other.into(),
        Err(error) => error,
    })
}

/// Set by the first Ctrl-C or SIGTERM: what runs ends and is reported. The second one ends the process.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            for _ in 0..2 {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if asked.swap(true, Ordering::Relaxed) {
                    std::process::exit(130);
                }
            }
        });
    });
    Ok(stop)
}

fn run(args: &RunArgs, stop: &Arc<AtomicBool>) -> Result<Outcome> {
    let plan = args.load.plan(args.rate);
    let outcome = run_load(&plan, stop, &mut |_| {})?;
    let document = Document::new(&plan, &outcome);
    write!(io::stdout(), "{}", text(&plan, &outcome, &document, args.latency))?;
    Ok(Outcome::Done)
}
