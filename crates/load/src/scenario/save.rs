//! A scenario as files: `scenario.json`, `report.md`, `report.html`.

use std::path::Path;

use super::page::scenario_page;
use super::result::{SCENARIO_FILE, ScenarioReport};
use crate::Error;
use crate::report::{write_file, write_json};

impl ScenarioReport {
    /// Writes `scenario.json`, `report.md` and `report.html` into a directory that is there. One that cannot be written
    /// does not keep the others from it.
    ///
    /// # Errors
    /// [`Error::System`], of the first that failed.
    pub fn save(&self, dir: &Path) -> Result<(), Error> {
        let results = [
            write_json(&dir.join(SCENARIO_FILE), self),
            write_file(&dir.join("report.md"), self.markdown().as_bytes()),
            scenario_page(&dir.join("report.html"), self),
        ];
        results.into_iter().collect()
    }
}
