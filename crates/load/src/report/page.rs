//! `report.html`: one file, nothing loaded from anywhere. uPlot draws; its licence is in the page and beside it.

use serde_json::{Value, json};

use super::document::Document;
use super::text::steps;
use crate::run::RunOutcome;

const PAGE: &str = include_str!("../../assets/page.html");
const BODY: &str = include_str!("../../assets/report.html");
const SCRIPT: &str = include_str!("../../assets/report.js");
const STYLE: &str = include_str!("../../assets/page.css");
const COMMON_SCRIPT: &str = include_str!("../../assets/page.js");
const UPLOT_SCRIPT: &str = include_str!("../../assets/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../assets/uPlot.min.css");
const UPLOT_LICENSE: &str = include_str!("../../assets/uPlot.LICENSE");

/// The page of a run.
pub(super) fn page(outcome: &RunOutcome, document: &Document) -> String {
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

pub(crate) fn assembled(body: &str, script: &str, data: &Value) -> String {
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
    use super::{BODY, COMMON_SCRIPT, PAGE, SCRIPT, UPLOT_LICENSE, UPLOT_SCRIPT};
    use crate::knee::page::{KNEE_BODY, KNEE_SCRIPT};
    use crate::scenario::page::{SCENARIO_BODY, SCENARIO_SCRIPT};

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
