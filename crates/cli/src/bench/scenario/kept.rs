//! Where a report is written, and which earlier ones it replaces: none that is worth more.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use kvorum_load::scenario::{SCENARIO_FILE, Scenario, ScenarioReport, read_report};

use crate::bench::args::ScenarioArgs;

/// What a scenario makes itself in the directory of its report, and of which it may leave a part out.
const DIRS: [&str; 2] = ["runs", "profiles"];

/// The directory of a report, and the one beside it where the next is written.
pub(super) struct ReportDir {
    dir: PathBuf,
    new: PathBuf,
}

impl ReportDir {
    pub(super) fn of(args: &ScenarioArgs, scenario: &Scenario) -> Self {
        let name = scenario.name;
        Self { dir: args.out.join(name), new: args.out.join(format!("{name}.new")) }
    }

    /// Refuses to replace a measurement by a try, and what cannot be read by one: it may have been a measurement.
    pub(super) fn check(&self, args: &ScenarioArgs) -> Result<()> {
        let is_there = self.dir.join(SCENARIO_FILE).is_file();
        if args.quick && is_there && self.read()?.is_some_and(|report| !report.is_quick) {
            bail!("{} is no quick report; --quick replaces none: give another --out", self.dir.display());
        }
        Ok(())
    }

    /// Makes both, the second without what an earlier scenario left there; it is returned.
    pub(super) fn prepare(&self) -> Result<&Path> {
        remove(&self.new)?;
        for dir in [&self.dir, &self.new] {
            std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        Ok(&self.new)
    }

    /// Puts what was written in the place of what is called so there; all else stays, such as what is written by hand.
    /// What cannot be put there does not keep the rest from it. Where it is then: an earlier one that is whole is not
    /// replaced by one that is not.
    pub(super) fn replace(&self, report: &ScenarioReport) -> Result<&Path> {
        if !is_whole(report) && self.earlier().is_some_and(|earlier| is_whole(&earlier)) {
            return Ok(&self.new);
        }
        DIRS.iter().try_for_each(|name| remove(&self.dir.join(name)))?;
        let entries = std::fs::read_dir(&self.new).with_context(|| self.new.display().to_string())?;
        let moved: Vec<Result<()>> = entries
            .map(|entry| {
                let entry = entry?;
                let to = self.dir.join(entry.file_name());
                std::fs::rename(entry.path(), &to).with_context(|| to.display().to_string())
            })
            .collect();
        moved.into_iter().collect::<Result<()>>()?;
        std::fs::remove_dir(&self.new).with_context(|| self.new.display().to_string())?;
        Ok(&self.dir)
    }

    /// Writes what is made of a saved report anew. Whether there was one.
    pub(super) fn render(&self) -> Result<bool> {
        match self.read()? {
            Some(report) => report.render(&self.dir).map(|()| true).map_err(Into::into),
            None => Ok(false),
        }
    }

    /// What cannot be read is worth nothing beside a measurement.
    fn earlier(&self) -> Option<ScenarioReport> {
        self.read().ok().flatten()
    }

    fn read(&self) -> Result<Option<ScenarioReport>> {
        Ok(read_report(&self.dir.join(SCENARIO_FILE))?)
    }
}

/// Whether all of it was done.
pub(super) fn is_whole(report: &ScenarioReport) -> bool {
    report.failures.is_empty() && !report.interrupted
}

/// Removes a directory, if it is there.
fn remove(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(|| dir.display().to_string()),
        _ => Ok(()),
    }
}
