//! `report.html`: one file, nothing loaded from anywhere. uPlot draws; its licence is in the page and beside it.

use std::path::Path;

use serde_json::{Value, json};

use super::document::Document;
use super::save::write_file;
use super::text::steps;
use crate::Error;
use crate::knee::Knee;
use crate::run::Outcome;
use crate::scenario::{COST, Report};

const PAGE: &str = include_str!("../../assets/page.html");
const BODY: &str = include_str!("../../assets/report.html");
const SCRIPT: &str = include_str!("../../assets/report.js");
const KNEE_BODY: &str = include_str!("../../assets/knee.html");
const KNEE_SCRIPT: &str = include_str!("../../assets/knee.js");
const SCENARIO_BODY: &str = include_str!("../../assets/scenario.html");
const SCENARIO_SCRIPT: &str = include_str!("../../assets/scenario.js");
const STYLE: &str = include_str!("../../assets/page.css");
const COMMON_SCRIPT: &str = include_str!("../../assets/page.js");
const UPLOT_SCRIPT: &str = include_str!("../../assets/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../assets/uPlot.min.css");
const UPLOT_LICENSE: &str = include_str!("../../assets/uPlot.LICENSE");

/// The page of a run.
pub(super) fn page(outcome: &Outcome, document: &Document) -> String {
    let curve = |histogram| -> Vec<Value> {
        let points = steps(histogram).into_iter().filter(|(_, quantile, _)| *quantile < 1.0);
        points.map(|(micros, quantile, _)| json!([1.0 / (1.0 - quantile), micros / 1e3])).collect()
    };
    let data = json!({
        "run": document,
        "host": document.said_of_host(),
        "slow_commits": document.slow_commits(),
        "unsent": document.said_of_unsent(),
        "hint": document.hint(),
        "latency": curve(&outcome.tally.latency),
        "service": curve(&outcome.tally.service),
    });
    assembled(BODY, SCRIPT, &data)
}

/// Writes the page of a search for the knee.
pub(crate) fn knee_page(path: &Path, knee: &Knee) -> Result<(), Error> {
    write_file(path, assembled(KNEE_BODY, KNEE_SCRIPT, &json!(knee)).as_bytes())
}

/// Writes the page of a scenario.
pub(crate) fn scenario_page(path: &Path, report: &Report) -> Result<(), Error> {
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

fn assembled(body: &str, script: &str, data: &Value) -> String {
    // In a script element only `</` could end it.
    let data = data.to_string().replace("</", "<\\/");
    [
        ("{{body}}", body.trim_end()),
        ("{{style}}", STYLE),
        ("{{uplot-style}}", UPLOT_STYLE),
        ("{{uplot-license}}", UPLOT_LICENSE),
        ("{{uplot-script}}", UPLOT_SCRIPT),
        ("{{common}}", COMMON_SCRIPT),
        ("{{script}}", script),
        ("{{data}}", &data),
    ]
    .iter()
    .fold(PAGE.to_owned(), |page, (place, content)| page.replacen(place, content, 1))
}

#[cfg(test)]
mod tests {
    use super::{
        BODY, COMMON_SCRIPT, KNEE_BODY, KNEE_SCRIPT, PAGE, SCENARIO_BODY, SCENARIO_SCRIPT, SCRIPT, UPLOT_LICENSE,
        UPLOT_SCRIPT,
    };

    #[test]
    fn the_pages_load_nothing() {
        let scripts = [SCRIPT, KNEE_SCRIPT, SCENARIO_SCRIPT, COMMON_SCRIPT];
        for part in [PAGE, BODY, KNEE_BODY, SCENARIO_BODY].iter().chain(&scripts) {
            assert!(!part.contains("src=") && !part.contains("http") && !part.contains("fetch("), "no network");
        }
        assert!(scripts.iter().chain(&[UPLOT_SCRIPT]).all(|script| !script.contains("</script")));
        assert!(UPLOT_LICENSE.starts_with("The MIT License"));
        for name in ["body", "style", "uplot-style", "uplot-license", "uplot-script", "common", "script", "data"] {
            let place = format!("{{{{{name}}}}}");
            assert_eq!(PAGE.matches(&place).count(), 1, "{place}");
        }
    }
}
