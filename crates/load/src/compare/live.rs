//! Live sides, in turn: a server that runs, or a command that starts one.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::measurement::Measurement;
use crate::Error;
use crate::client::Client;
use crate::fill::{FILL_BATCH, fill};
use crate::random::mix;
use crate::report::{Document, RUN_FILE, save};
use crate::run::{RunPlan, reach, run};
use crate::target::Target;

/// For a server to start and to stop.
const START_DEADLINE: Duration = Duration::from_secs(120);
const STOP_DEADLINE: Duration = Duration::from_secs(20);
/// For an earlier server at a command's targets to go away.
const FREE_DEADLINE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);
/// What was found, beside the runs.
pub const COMPARISON_FILE: &str = "compare.json";

/// What a side is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// Runs that were saved: a directory of them, or of one, or its file.
    Saved(PathBuf),
    /// Servers that run.
    Servers(Vec<Target>),
    /// A shell's command that serves at the plan's targets while it runs.
    Command(String),
}

impl std::str::FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("http://") {
            return text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self::Servers);
        }
        let path = Path::new(text);
        let looks_like_path = text.contains('/') && !text.contains(char::is_whitespace);
        match text {
            "" => Err("neither a directory, nor a URL, nor a command".into()),
            // A run's file stands for its directory.
            _ if path.is_dir() || path.ends_with(RUN_FILE) && path.is_file() => Ok(Self::Saved(path.to_owned())),
            // A shell would only say the same, later.
            _ if looks_like_path && !path.exists() => Err("there is no such path, nor is it an http:// URL".into()),
            _ => Ok(Self::Command(text.to_owned())),
        }
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Saved(path) => write!(f, "{}", path.display()),
            Self::Servers(targets) => {
                f.write_str(&targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
            }
            Self::Command(command) => f.write_str(command),
        }
    }
}

/// One run of one side has ended.
#[derive(Debug)]
pub struct Turn<'a> {
    /// `A` or `B`.
    pub side: char,
    /// From 1 on.
    pub number: usize,
    /// What it came to.
    pub document: &'a Document,
}

/// Runs of both sides, in turn.
#[derive(Debug)]
pub struct PairedRuns<'a> {
    /// What each run does; its targets are those of commands.
    pub plan: &'a RunPlan,
    /// Runs of each side.
    pub pairs: usize,
    /// Where to save each run, below `a` and `b`.
    pub dir: Option<&'a Path>,
    /// Ends the contest after the run that is under way.
    pub stop: &'a Arc<AtomicBool>,
}

/// Runs A B A B. Blocks. If it is stopped or fails, the pairs that were whole are returned. The runs of an earlier
/// contest in the same directory, and what was found of them, are removed before the first of these is saved: they
/// would be compared with these.
///
/// # Errors
/// Beside those pairs, those of [`run()`] and [`fill()`], and [`Error::Refused`] if a command's server does not start,
/// or a run has no success; else the first of removing and saving, which ends nothing.
pub fn live(
    contest: &PairedRuns<'_>,
    a: &Side,
    b: &Side,
    watch: &mut dyn FnMut(Turn<'_>),
) -> ([Vec<Measurement>; 2], Result<(), Error>) {
    let mut turns = Turns { contest, measured: [Vec::new(), Vec::new()], saved: Ok(()) };
    let ended = turns.take(a, b, watch);
    (turns.measured, ended.and(turns.saved))
}

struct Turns<'a> {
    contest: &'a PairedRuns<'a>,
    /// Of pairs that were whole.
    measured: [Vec<Measurement>; 2],
    /// The first failure to save a run.
    saved: Result<(), Error>,
}

impl Turns<'_> {
    fn take(&mut self, a: &Side, b: &Side, watch: &mut dyn FnMut(Turn<'_>)) -> Result<(), Error> {
        for number in 1..=self.contest.pairs {
            let mut pair = Vec::new();
            for (name, side) in [('A', a), ('B', b)] {
                let turn = self.turn(name, side, number);
                // Also where it failed: a server that is not up yet is no error then.
                if self.contest.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let document = turn?;
                watch(Turn { side: name, number, document: &document });
                pair.push(Measurement::of(&document, &format!("{name}{number}"))?);
            }
            self.measured.iter_mut().zip(pair).for_each(|(runs, run)| runs.push(run));
        }
        Ok(())
    }

    fn turn(&mut self, name: char, side: &Side, number: usize) -> Result<Document, Error> {
        let PairedRuns { plan, dir, stop, .. } = self.contest;
        let mut plan = (*plan).clone();
        // Every run draws other keys, so that none finds in a cache what the one before it has read.
        plan.seed = mix(plan.seed ^ u64::from(u32::from(name)) << 32 ^ crate::numbers::count(number));
        let _server = match side {
            Side::Saved(path) => {
                return Err(Error::Usage(format!("{} is saved and cannot run", path.display())));
            }
            Side::Servers(targets) => {
                plan.targets.clone_from(targets);
                None
            }
            Side::Command(command) => Some(Server::start(command, &plan, stop)?),
        };
        if matches!(side, Side::Command(_)) && plan.workload.reads() {
            fill(&RunPlan { batch: FILL_BATCH, ..plan.clone() }, stop, &mut |_| {})?;
        }
        let outcome = run(&plan, stop, &mut |_| {})?;
        let document = Document::new(&plan, &outcome);
        // One that was interrupted is of no pair, and shall not be found beside those that are.
        if let Some(dir) = dir.filter(|_| !outcome.interrupted) {
            let forgotten = if (name, number) == ('A', 1) { forget(dir) } else { Ok(()) };
            let run = dir.join(name.to_ascii_lowercase().to_string()).join(format!("{number:02}"));
            let saved = forgotten.and(save(&run, &outcome, &document));
            self.saved = std::mem::replace(&mut self.saved, Ok(())).and(saved);
        }
        Ok(document)
    }
}

/// Removes an earlier contest, which may have had more runs: what was found of it first, since it is of all of them.
fn forget(dir: &Path) -> Result<(), Error> {
    let comparison = dir.join(COMPARISON_FILE);
    if comparison.is_file() {
        fs::remove_file(&comparison).map_err(Error::system(comparison.display().to_string()))?;
    }
    for side in ["a", "b"] {
        let Ok(entries) = fs::read_dir(dir.join(side)) else { continue };
        let is_number =
            |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok());
        let runs = entries.flatten().map(|entry| entry.path());
        for run in runs.filter(|path| is_number(path) && path.join(RUN_FILE).is_file()) {
            fs::remove_dir_all(&run).map_err(Error::system(run.display().to_string()))?;
        }
    }
    Ok(())
}

/// A server in a process group of its own; stopped when it is dropped.
struct Server(Child);

/// The group of the server that runs, 0 if none does: sides take turns.
static GROUP: AtomicI32 = AtomicI32::new(0);

/// Kills the server of a command, if one runs. For a process that ends without dropping anything.
pub fn kill_server() {
    if let Some(group) = Pid::from_raw(GROUP.load(Ordering::Relaxed)) {
        // One that has ended already has no group any more.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

impl Server {
    /// Starts it and waits until every target answers `/readyz` with anything but 503.
    fn start(command: &str, plan: &RunPlan, stop: &AtomicBool) -> Result<Self, Error> {
        wait_free(command, plan)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let mut server = Self(shell.spawn().map_err(Error::system("sh"))?);
        GROUP.store(Pid::from_child(&server.0).as_raw_nonzero().get(), Ordering::Relaxed);
        let deadline = Instant::now() + START_DEADLINE;
        for target in &plan.targets {
            let mut client = Client::new(target.clone(), Duration::from_secs(1));
            while client.get("/readyz").map_or(true, |page| page.status == 503) {
                if let Ok(Some(status)) = server.0.try_wait() {
                    return Err(Error::Refused(format!("`{command}` ended before it served: {status}")));
                }
                if Instant::now() > deadline || stop.load(Ordering::Relaxed) {
                    return Err(Error::Refused(format!("`{command}` does not serve at {target}")));
                }
                thread::sleep(POLL);
            }
        }
        Ok(server)
    }
}

/// Waits until nothing serves at the targets: it would be measured instead.
fn wait_free(command: &str, plan: &RunPlan) -> Result<(), Error> {
    let deadline = Instant::now() + FREE_DEADLINE;
    for target in &plan.targets {
        while reach(target).is_ok() {
            if Instant::now() > deadline {
                let text = format!("a server is at {target} already, and would be measured instead of `{command}`");
                return Err(Error::Refused(text));
            }
            thread::sleep(POLL);
        }
    }
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.0);
        // One that has ended already has no group any more.
        let _ = kill_process_group(group, Signal::TERM);
        let deadline = Instant::now() + STOP_DEADLINE;
        // All of the group: a shell may be gone before its children.
        while Instant::now() < deadline {
            let _ = self.0.try_wait();
            if test_kill_process_group(group).is_err() {
                break;
            }
            thread::sleep(POLL);
        }
        let _ = kill_process_group(group, Signal::KILL);
        GROUP.store(0, Ordering::Relaxed);
        let _ = self.0.wait();
    }
}
