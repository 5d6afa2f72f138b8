//! The board for Grafana, written from the table of the console's series: the same graphs, from Prometheus.

use serde_json::{Value, json};

use crate::hold_file;

const WIDTH: usize = 8;
const HEIGHT: usize = 7;
const ACROSS: usize = 24 / WIDTH;

/// The queries of all graphs.
pub(crate) fn queries() -> Vec<String> {
    let series = kvorum_console::series();
    series.as_array().unwrap().iter().map(|row| row["promql"].as_str().unwrap().to_owned()).collect()
}

/// Grafana's name of a unit.
fn unit(unit: &str) -> &'static str {
    match unit {
        "1/s" => "reqps",
        "s" => "s",
        "B" => "bytes",
        "B/s" => "Bps",
        "1" => "short",
        other => panic!("a unit that the board does not know: {other}"),
    }
}

fn panel(index: usize, row: &Value) -> Value {
    let source = json!({ "type": "prometheus", "uid": "${source}" });
    json!({
        "id": index + 1,
        "type": "timeseries",
        "title": row["title"],
        "datasource": source,
        "gridPos": { "x": index % ACROSS * WIDTH, "y": index / ACROSS * HEIGHT, "w": WIDTH, "h": HEIGHT },
        "fieldConfig": { "defaults": { "unit": unit(row["unit"].as_str().unwrap()), "min": 0 }, "overrides": [] },
        "targets": [{ "refId": "A", "datasource": source, "expr": row["promql"], "legendFormat": "{{instance}}" }],
    })
}

#[test]
fn the_board_has_a_graph_for_each_series_of_the_console() {
    let series = kvorum_console::series();
    let panels = series.as_array().unwrap().iter().enumerate().map(|(at, row)| panel(at, row).to_string());
    let head = json!({
        "title": "kvorum",
        "uid": "kvorum",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [{ "name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus" }] },
    });
    // A line for each, so that a change is one of a line.
    let head = head.to_string().strip_suffix('}').unwrap().to_owned();
    let panels: Vec<String> = panels.collect();
    hold_file("contrib/grafana/kvorum.json", &format!("{head},\"panels\":[\n{}\n]}}\n", panels.join(",\n")));
}
