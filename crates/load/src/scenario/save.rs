//! A scenario as files: `scenario.json`, and `report.md`, its plots and `report.html`, which are made of that.

use std::path::Path;

use super::layout::laid_out;
use super::page::scenario_page;
use super::result::{SCENARIO_FILE, ScenarioReport};
use crate::Error;
use crate::report::write_file;

impl ScenarioReport {
    /// Writes everything into a directory that is there. What cannot be written does not keep the rest from it.
    ///
    /// # Errors
    /// [`Error::System`], of the first that failed.
    pub fn save(&self, dir: &Path) -> Result<(), Error> {
        let (path, text) = (dir.join(SCENARIO_FILE), laid_out(self));
        let written = write_file(&path, text.as_bytes());
        // Its figures are rounded, and what is made of them later is to be the same.
        let kept = serde_json::from_str::<Self>(&text)
            .map_err(|error| Error::System { what: path.display().to_string(), cause: error.into() });
        written.and(kept.and_then(|kept| kept.render(dir)))
    }

    /// The same without `scenario.json`, which it is made of.
    ///
    /// # Errors
    /// [`Error::System`], of the first that failed.
    pub fn render(&self, dir: &Path) -> Result<(), Error> {
        let plots = self.plots();
        let plots = plots.iter().map(|plot| write_file(&dir.join(plot.file), plot.svg.as_bytes()));
        let text = write_file(&dir.join("report.md"), self.markdown().as_bytes());
        let results: Vec<Result<(), Error>> =
            [text, scenario_page(&dir.join("report.html"), self)].into_iter().chain(plots).collect();
        results.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::result::tests::report;
    use crate::scenario::save::*;

    #[test]
    fn a_run_without_a_success_is_saved_and_told_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = report("quorum");
        report.clusters[0].knees[0].search[0].p99_ms = f64::NAN;
        report.save(dir.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let (page, plot) = (read("report.md"), read("knees.svg"));
        assert!(!plot.contains("NaN"), "{plot}");
        let kept: ScenarioReport = serde_json::from_str(&read(SCENARIO_FILE)).unwrap();
        kept.render(dir.path()).unwrap();
        assert!((read("report.md"), read("knees.svg")) == (page, plot), "rendered again it is the same");
    }
}
