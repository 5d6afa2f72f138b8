//! Profiles of the coordinator while it is under load, by `kvorum profile`.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use kvorum_load::run::{RunPlan, run};
use kvorum_load::scenario::ProfileReport;

use crate::bench::lines::warn;

const KINDS: [&str; 3] = ["cpu", "alloc", "lock"];
/// For a profile to be sent and written, beyond its time.
const SLACK: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Samples a second: a run of seconds has hundreds.
const FREQUENCY: &str = "499";
/// Characters of its own error when it fails.
const SAID_MAX: u64 = 2_000;

/// What to profile, and where to write it.
#[derive(Debug)]
pub(super) struct Session<'a> {
    /// The load meanwhile.
    pub(super) plan: RunPlan,
    pub(super) admin_url: &'a str,
    pub(super) seconds: u64,
    /// The report's directory.
    pub(super) report_dir: &'a Path,
    /// Below it.
    pub(super) dir: String,
    /// Names the load.
    pub(super) point: &'a str,
    pub(super) stop: &'a AtomicBool,
}

/// All three kinds, one after the other, under the same load. What cannot be had says why.
pub(super) fn profiles(session: &Session<'_>) -> Vec<ProfileReport> {
    let ended = Arc::new(AtomicBool::new(false));
    let warm = AtomicBool::new(false);
    let each = Duration::from_secs(session.seconds) + SLACK;
    let plan = RunPlan { duration: each * 3, watch: false, ..session.plan.clone() };
    let mut progress = |at: kvorum_load::run::RunProgress| warm.store(at.elapsed >= plan.warmup, Ordering::Relaxed);
    scope(|scope| {
        let load = scope.spawn(|| run(&plan, &ended, &mut progress));
        while !warm.load(Ordering::Relaxed) && !load.is_finished() {
            sleep(POLL);
        }
        let mut taken = Vec::new();
        for kind in KINDS {
            let result = match load.is_finished() {
                true => Err("the load ended before it".to_owned()),
                false => session.take(kind),
            };
            taken.push(session.told(kind, result));
        }
        ended.store(true, Ordering::Relaxed);
        // A load that failed shows in its profiles, and in the next stage.
        let _ = load.join();
        taken
    })
}

impl Session<'_> {
    fn told(&self, kind: &str, result: Result<String, String>) -> ProfileReport {
        let (top, missing) = match result {
            Ok(page) => (ProfileReport::head(self.point, &page), None),
            Err(why) => {
                warn(format_args!("no profile: {kind}: {why}"));
                (String::new(), Some(format!("{kind}: {why}")))
            }
        };
        ProfileReport { point: self.point.into(), kind: kind.into(), dir: self.dir.clone(), top, missing }
    }

    /// One profile: its page.
    fn take(&self, kind: &str) -> Result<String, String> {
        let dir = self.report_dir.join(&self.dir);
        let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
        command.args(["profile", "--url", self.admin_url, "--kind", kind]);
        command.args(["--seconds", &self.seconds.to_string(), "--frequency", FREQUENCY, "--out"]).arg(&dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        self.wait(&mut child)?;
        if !dir.join(format!("{kind}.svg")).is_file() {
            return Err("it has no samples".into());
        }
        let path = dir.join(format!("{kind}.md"));
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn wait(&self, child: &mut Child) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(self.seconds) + SLACK;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                break status;
            }
            let stopped = self.stop.load(Ordering::Relaxed);
            if stopped || Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                return Err(if stopped { "interrupted".into() } else { "it does not end".into() });
            }
            sleep(POLL);
        };
        if status.success() {
            return Ok(());
        }
        let mut said = String::new();
        if let Some(stderr) = child.stderr.take() {
            let _ = stderr.take(SAID_MAX).read_to_string(&mut said);
        }
        Err(said.lines().next().map_or_else(|| status.to_string(), str::to_owned))
    }
}
