//! `serve` and `config`: a process that is one node, and the settings of one.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use kvorum_config::{Effective, Exposure, LogFormat, LogLevel, LogSection, Sources, check_file, load};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tracing::level_filters::LevelFilter;

use kvorum_cli::args::{NodeArgs, ServeArgs};
use kvorum_cli::outcome::ExitOutcome;
use kvorum_cli::output::{OutputForm, show};

use crate::parent;

/// `kvorum serve`: returns when the node has stopped, or did not start.
pub(crate) fn serve(args: &ServeArgs) -> Result<ExitOutcome> {
    private_files();
    let Effective { config, ignored, .. } =
        effective_with(&args.node, &[("insecure", args.insecure.then(|| "true".to_owned()))])?;
    let exposure = config.exposure()?;
    start_logging(config.log);
    if !ignored.is_empty() {
        tracing::info!(variables = ignored.join(" "), "variables of Kubernetes services are no settings: ignored");
    }
    if exposure == Exposure::Insecure {
        tracing::warn!(listen = %config.listen, "INSECURE: whoever reaches this port may do everything");
    }
    stop_at_a_broken_invariant();
    if let Err(error) = raise_open_files() {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let faults = args.stop_on_stdin_eof.then(parent::follow).transpose()?;
    if let Err(error) = kvorum_server::node::run(&config, env!("KVORUM_COMMIT"), faults) {
        tracing::error!(%error, "cannot start");
        return Ok(ExitOutcome::Usage);
    }
    Ok(ExitOutcome::Done)
}

/// Files and directories that this process makes are their owner's alone. To be called before there is a thread.
pub(crate) fn private_files() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// `kvorum config check`
pub(crate) fn check(file: &Path, form: OutputForm) -> Result<ExitOutcome> {
    let config = check_file(file)?;
    kvorum_server::secrets::check(&config)?;
    let name = file.display().to_string();
    let starts_alone = config.exposure().is_ok();
    let text = format!("{name}: all settings are known and allowed");
    show(form, &json!({"file": name, "starts_alone": starts_alone}), &text)?;
    if let Err(error) = config.exposure() {
        // A flag or a variable may add what is missing.
        writeln!(io::stderr(), "warning: with this file alone a node does not start: {error}")?;
    }
    Ok(ExitOutcome::Done)
}

/// `kvorum config print`
pub(crate) fn print(args: &NodeArgs, form: OutputForm) -> Result<ExitOutcome> {
    for entry in effective(args)?.entries {
        let object = json!({"name": entry.name, "value": entry.value, "origin": entry.origin.to_string()});
        show(form, &object, &entry.to_string())?;
    }
    Ok(ExitOutcome::Done)
}

pub(crate) fn effective(args: &NodeArgs) -> Result<Effective> {
    effective_with(args, &[])
}

/// The same with flags that not all commands have.
fn effective_with(args: &NodeArgs, more: &[(&'static str, Option<String>)]) -> Result<Effective> {
    let flags = [
        ("listen", &args.listen),
        ("cluster", &args.cluster),
        ("data_dir", &args.data_dir),
        ("advertise", &args.advertise),
    ];
    let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
    let sources = Sources {
        flags: flags
            .into_iter()
            .chain(more.iter().map(|(name, value)| (*name, value)))
            .filter_map(|(name, value)| Some((name, value.clone()?)))
            .collect(),
        environment: std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect(),
        file: args.config.clone(),
    };
    Ok(load(&sources)?)
}

fn start_logging(log: LogSection) {
    let level = match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let terminal = io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).with_ansi(terminal);
    // It would write to stderr as well, and panic where that fails: on a full disk, say.
    let builder = builder.log_internal_errors(false);
    match log.format {
        LogFormat::Text => builder.init(),
        LogFormat::Auto if terminal => builder.init(),
        LogFormat::Auto | LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}

/// A panic is a broken invariant: whatever the thread, the node as a whole stops rather than go on with
/// a part of it missing. What was acknowledged is on disk, as after any other kill.
fn stop_at_a_broken_invariant() {
    static STOPPING: AtomicBool = AtomicBool::new(false);
    std::panic::set_hook(Box::new(|panic| {
        // A panic while this one is logged must not log forever.
        if !STOPPING.swap(true, Ordering::SeqCst) {
            let invariant = panic.payload_as_str().unwrap_or("unnamed");
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let backtrace = std::backtrace::Backtrace::force_capture();
            tracing::error!(invariant, place, %backtrace, "broken invariant, the node stops");
        }
        std::process::abort();
    }));
}

/// Each connection and each table of the store is an open file; the usual soft limit of 1,024 is few.
fn raise_open_files() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}
