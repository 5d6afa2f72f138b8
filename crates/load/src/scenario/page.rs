//! The page of a scenario.

use std::path::Path;

use serde_json::json;

use super::result::ScenarioReport;
use super::text::COST;
use crate::Error;
use crate::report::{assembled, write_file};

pub(crate) const SCENARIO_BODY: &str = include_str!("../../assets/scenario.html");
pub(crate) const SCENARIO_SCRIPT: &str = include_str!("../../assets/scenario.js");

/// Writes the page of a scenario.
pub(crate) fn scenario_page(path: &Path, report: &ScenarioReport) -> Result<(), Error> {
    let cost: Vec<[String; 9]> = std::iter::once(COST.map(str::to_owned)).chain(report.cost()).collect();
    let data = json!({
        "report": report,
        "less": report.less(),
        "rows": report.beside(),
        "warnings": report.said(),
        "laws": report.what_bends(),
        "cost": cost,
        "evenness": report.evenness(),
    });
    write_file(path, assembled(SCENARIO_BODY, SCENARIO_SCRIPT, &data).as_bytes())
}
