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
        let text = laid_out(self);
        // Its figures are rounded, and what is made of them later is to be the same.
        let kept: Self = serde_json::from_str(&text).expect("what is written can be read");
        let results = [write_file(&dir.join(SCENARIO_FILE), text.as_bytes()), kept.render(dir)];
        results.into_iter().collect()
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
