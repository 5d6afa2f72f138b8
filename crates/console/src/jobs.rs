//! Jobs of the lab: children of this program that take a profile or make load, and what they have written.
//!
//! Few at a time, and few are kept: the directory of one that is forgotten is removed. All end with the console, however
//! that ends: a job stops when its stdin does.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ctutils::CtEq;
use serde_json::{Value, json};

use crate::problem::ConsoleProblem;
use crate::random::random_hex;
use crate::settings::LabJobs;

/// Between two looks whether a job has ended.
const POLL: Duration = Duration::from_millis(20);
const RUNNING_MAX: usize = 2;
const KEPT_MAX: usize = 16;
/// For a report that is to be looked at.
const TICKET_TIME: Duration = Duration::from_secs(600);
/// A ticket that is nearly over is not given out again.
const TICKET_LEFT: Duration = Duration::from_secs(60);
/// For a job that is stopped to report what there is.
const STOP_TIME: Duration = Duration::from_secs(5);
/// Of what a child says on stderr.
const WORDS_BYTES_MAX: usize = 4096;
/// Of a line of its progress.
const LINE_BYTES_MAX: u64 = 16 << 10;

/// What to look at, the first that is there.
const SHOWN: [&str; 8] = [
    "report.html",
    "cpu.diff.svg",
    "alloc.diff.svg",
    "lock.diff.svg",
    "cpu.svg",
    "alloc.svg",
    "lock.svg",
    "compare.json",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobState {
    Running,
    Done,
    Failed,
    /// By whoever looked at it, before its end.
    Stopped,
}

/// How far it is.
#[derive(Debug)]
struct JobProgress {
    state: JobState,
    /// The last line of it.
    line: Value,
    /// The end of what it said on stderr.
    words: Vec<u8>,
    error: Option<String>,
    is_stopping: bool,
    /// What there is to look at, once it has ended.
    shown: Option<&'static str>,
}

/// One job.
#[derive(Debug)]
pub(crate) struct LabJob {
    pub(crate) id: u64,
    kind: String,
    pub(crate) dir: PathBuf,
    begin: Instant,
    /// How long it takes, where that is known.
    seconds: Option<u64>,
    child: Mutex<Child>,
    progress: Mutex<JobProgress>,
    ticket: Mutex<Option<(String, Instant)>>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Jobs {
    pub(crate) settings: LabJobs,
    list: Mutex<JobList>,
}

#[derive(Debug, Default)]
struct JobList {
    jobs: Vec<Arc<LabJob>>,
    last_id: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LabJob {
    fn state(&self) -> JobState {
        locked(&self.progress).state
    }

    /// Has it end, and report what there is.
    fn stop(self: &Arc<Self>) {
        if std::mem::replace(&mut locked(&self.progress).is_stopping, true) {
            return;
        }
        drop(locked(&self.child).stdin.take());
        let job = self.clone();
        std::thread::spawn(move || {
            let end = Instant::now() + STOP_TIME;
            while job.state() == JobState::Running {
                if Instant::now() > end {
                    return job.kill();
                }
                std::thread::sleep(POLL);
            }
        });
    }

    /// Ends it. What it has written stays.
    fn kill(&self) {
        // It may have ended by itself.
        let _ = locked(&self.child).kill();
    }

    fn shown(&self) -> Option<&'static str> {
        locked(&self.progress).shown
    }

    /// A ticket for what it has written.
    fn ticket(&self) -> Option<String> {
        self.shown()?;
        let mut ticket = locked(&self.ticket);
        let left = ticket.as_ref().map(|(_, given)| TICKET_TIME.saturating_sub(given.elapsed()));
        if left.is_none_or(|left| left < TICKET_LEFT) {
            *ticket = Some((random_hex().ok()?, Instant::now()));
        }
        ticket.as_ref().map(|(ticket, _)| ticket.clone())
    }

    fn has_ticket(&self, given: &str) -> bool {
        locked(&self.ticket).as_ref().is_some_and(|(ticket, since)| {
            since.elapsed() < TICKET_TIME && bool::from(ticket.as_bytes().ct_eq(given.as_bytes()))
        })
    }

    fn show(&self) -> Value {
        let (state, line, error) = {
            let progress = locked(&self.progress);
            (progress.state, progress.line.clone(), progress.error.clone())
        };
        let progress = match self.seconds {
            Some(seconds) if state == JobState::Running => {
                json!({ "elapsed_s": self.begin.elapsed().as_secs().min(seconds), "seconds": seconds })
            }
            _ => line,
        };
        let open = if state == JobState::Running { None } else { self.ticket() };
        json!({
            "id": self.id,
            "kind": self.kind,
            "state": match state {
                JobState::Running => "running",
                JobState::Done => "done",
                JobState::Failed => "failed",
                JobState::Stopped => "stopped",
            },
            "progress": progress,
            "error": error,
            "open": open.map(|ticket| format!("/open/{ticket}/")),
        })
    }
}

impl Jobs {
    /// What another console has left is removed.
    pub(crate) fn new(settings: LabJobs) -> Self {
        for entry in std::fs::read_dir(&settings.dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("job-") {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        Self { settings, list: Mutex::default() }
    }

    /// Starts one: its arguments and what comes of them go to a directory of its own. `make` gets that directory.
    ///
    /// # Errors
    /// 503 where too many run, or the system refuses.
    pub(crate) fn start(
        &self,
        kind: &str,
        seconds: Option<u64>,
        make: impl FnOnce(&Path) -> Vec<String>,
    ) -> Result<u64, ConsoleProblem> {
        let mut list = locked(&self.list);
        let running = list.jobs.iter().filter(|job| job.state() == JobState::Running).count();
        if running >= RUNNING_MAX {
            return Err(ConsoleProblem::full(format!("{running} jobs run already: wait for one, or stop it")));
        }
        self.forget_old(&mut list);
        list.last_id += 1;
        let id = list.last_id;
        let dir = self.settings.dir.join(format!("job-{id}"));
        let refused =
            |what: &str, error: std::io::Error| ConsoleProblem::new(503, "Cannot Start", format!("{what}: {error}"));
        std::fs::create_dir_all(&dir).map_err(|error| refused(&format!("cannot make {}", dir.display()), error))?;
        let mut command = Command::new(&self.settings.program);
        command.args(make(&dir)).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(file) = &self.settings.key_file {
            command.arg("--key-file").arg(file);
        }
        let mut child = command.spawn().map_err(|error| refused("cannot start it", error))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let job = Arc::new(LabJob {
            id,
            kind: kind.to_owned(),
            dir,
            begin: Instant::now(),
            seconds,
            child: Mutex::new(child),
            progress: Mutex::new(JobProgress {
                state: JobState::Running,
                line: Value::Null,
                words: Vec::new(),
                error: None,
                is_stopping: false,
                shown: None,
            }),
            ticket: Mutex::default(),
        });
        list.jobs.push(job.clone());
        let words = {
            let job = job.clone();
            std::thread::spawn(move || follow(&job, stderr))
        };
        std::thread::spawn(move || {
            follow(&job, stdout);
            // A defect of it is no reason not to wait for the child.
            let _ = words.join();
            end(&job);
        });
        Ok(id)
    }

    /// Makes room for another.
    fn forget_old(&self, list: &mut JobList) {
        while list.jobs.len() >= KEPT_MAX {
            let Some(oldest) = list.jobs.iter().position(|job| job.state() != JobState::Running) else { return };
            let job = list.jobs.remove(oldest);
            let _ = std::fs::remove_dir_all(&job.dir);
        }
    }

    pub(crate) fn show(&self) -> Value {
        let jobs = locked(&self.list).jobs.clone();
        jobs.iter().map(|job| job.show()).collect()
    }

    /// A job by its id.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<LabJob>> {
        locked(&self.list).jobs.iter().find(|job| job.id == id).cloned()
    }

    /// Ends a job.
    ///
    /// # Errors
    /// 404
    pub(crate) fn stop(&self, id: &str) -> Result<(), ConsoleProblem> {
        let job = id.parse().ok().and_then(|id| self.find(id));
        let job = job.ok_or_else(|| ConsoleProblem::not_found(format!("there is no job {id}: it may be forgotten")))?;
        job.stop();
        Ok(())
    }

    /// The directory that a ticket opens, and the file in it for an empty path.
    pub(crate) fn opened(&self, ticket: &str) -> Option<(PathBuf, &'static str)> {
        let jobs = locked(&self.list).jobs.clone();
        let job = jobs.iter().find(|job| job.has_ticket(ticket))?;
        Some((job.dir.clone(), job.shown()?))
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for job in &locked(&self.list).jobs {
            job.kill();
        }
    }
}

/// Reads what a child says, to its end: JSON is its progress, everything else are words.
fn follow(job: &LabJob, pipe: Option<impl Read>) {
    let Some(pipe) = pipe else { return };
    let mut lines = BufReader::new(pipe);
    loop {
        let mut line = Vec::new();
        match lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let mut progress = locked(&job.progress);
        match serde_json::from_slice::<Value>(&line).ok().filter(Value::is_object) {
            Some(value) => progress.line = value,
            None => {
                progress.words.extend_from_slice(&line);
                let over = progress.words.len().saturating_sub(WORDS_BYTES_MAX);
                progress.words.drain(..over);
            }
        }
    }
}

/// Waits for a child that has closed its pipes.
fn end(job: &LabJob) {
    let outcome = loop {
        match locked(&job.child).try_wait() {
            Ok(None) => {}
            outcome => break outcome,
        }
        // It may have closed its pipes before it ends.
        std::thread::sleep(POLL);
    };
    let mut progress = locked(&job.progress);
    let words = String::from_utf8_lossy(&progress.words).trim().to_owned();
    if progress.line.is_null() && !words.is_empty() {
        progress.line = json!({ "said": words });
    }
    progress.shown = SHOWN.into_iter().find(|name| job.dir.join(name).is_file());
    (progress.state, progress.error) = match outcome {
        Ok(_) if progress.is_stopping => (JobState::Stopped, None),
        Ok(Some(status)) if status.success() => (JobState::Done, None),
        Ok(Some(status)) => (JobState::Failed, Some(if words.is_empty() { status.to_string() } else { words })),
        Ok(None) => (JobState::Failed, None),
        Err(error) => (JobState::Failed, Some(error.to_string())),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(dir: &Path) -> Jobs {
        Jobs::new(LabJobs { dir: dir.to_owned(), program: "/bin/sh".into(), key_file: None })
    }

    fn start(jobs: &Jobs, script: &str) -> Result<u64, ConsoleProblem> {
        jobs.start("run", None, |dir| vec!["-c".to_owned(), script.replace("DIR", &dir.display().to_string())])
    }

    fn wait_for(jobs: &Jobs, id: u64, state: &str) -> Value {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let list = jobs.show();
            let job = list.as_array().unwrap().iter().find(|job| job["id"] == id).cloned().unwrap_or_default();
            if job["state"] == state {
                return job;
            }
            assert!(Instant::now() < deadline, "{job} is not {state}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn what_a_job_has_written_is_opened_by_its_ticket() {
        let dir = tempfile::tempdir().unwrap();
        let jobs = jobs(dir.path());
        let id = start(&jobs, r#"echo '{"probe":1}'; echo words >&2; echo page > DIR/report.html"#).unwrap();
        let job = wait_for(&jobs, id, "done");
        assert_eq!(job["progress"]["probe"], 1);
        let ticket = job["open"].as_str().unwrap().trim_matches('/').strip_prefix("open/").unwrap().to_owned();
        let (opened, file) = jobs.opened(&ticket).unwrap();
        assert_eq!(std::fs::read_to_string(opened.join(file)).unwrap(), "page\n");
        assert!(jobs.opened("0").is_none() && jobs.opened("").is_none());
    }

    #[test]
    fn a_job_that_fails_says_why_and_one_that_is_stopped_ends() {
        let dir = tempfile::tempdir().unwrap();
        let jobs = jobs(dir.path());
        let failed = start(&jobs, "echo 'no space left' >&2; exit 4").unwrap();
        assert_eq!(wait_for(&jobs, failed, "failed")["error"], "no space left");
        let long = start(&jobs, "cat > /dev/null; echo page > DIR/report.html").unwrap();
        assert_eq!(jobs.show()[1]["state"], "running");
        jobs.stop(&long.to_string()).unwrap();
        let stopped = wait_for(&jobs, long, "stopped");
        assert!(stopped["open"].is_string() && stopped["error"].is_null(), "it has reported what there was: {stopped}");
        let deaf = start(&jobs, "exec sleep 600").unwrap();
        jobs.stop(&deaf.to_string()).unwrap();
        wait_for(&jobs, deaf, "stopped");
        assert_eq!(jobs.stop("99").unwrap_err().status, 404);
    }

    #[test]
    fn few_jobs_run_and_few_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let jobs = jobs(dir.path());
        for _ in 0..RUNNING_MAX {
            start(&jobs, "exec cat").unwrap();
        }
        assert_eq!(start(&jobs, "true").unwrap_err().status, 503);
        jobs.stop("1").unwrap();
        wait_for(&jobs, 1, "stopped");
        for _ in 0..KEPT_MAX * 2 {
            let id = start(&jobs, "true").unwrap();
            wait_for(&jobs, id, "done");
        }
        assert_eq!(jobs.show().as_array().unwrap().len(), KEPT_MAX);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), KEPT_MAX, "what is forgotten is removed");
        assert_eq!(jobs.find(2).map(|job| job.state()), Some(JobState::Running), "what runs is not forgotten");
    }
}
