//! What a node shows of itself over HTTP.

use serde_json::Value;

use super::sample::{SLOW_COMMIT_SECONDS, Sample};
use crate::client::Client;
use crate::numbers::whole;
use crate::target::Target;

/// The nodes of the cluster, if this one lists them; those whose URL is of another form are left out.
pub(super) fn cluster(client: &mut Client) -> Vec<Target> {
    let page = client.get("/v0/cluster").ok().filter(|page| page.status == 200);
    let page: Option<Value> = page.and_then(|page| serde_json::from_slice(&page.body).ok());
    let nodes = page.as_ref().and_then(|page| page.get("nodes")?.as_array());
    let urls = nodes.into_iter().flatten().filter_map(|node| node.get("url")?.as_str());
    urls.filter_map(|url| url.parse().ok()).collect()
}

/// What `/metrics` has of the process; none if there is no such page, or nothing of that on it.
pub(super) fn sample(client: &mut Client) -> Option<Sample> {
    let page = client.get("/metrics").ok().filter(|page| page.status == 200)?;
    Some(parse(&String::from_utf8_lossy(&page.body))).filter(|sample| *sample != Sample::default())
}

/// The names are those that Prometheus' clients agree on, and those of kvorum's own that show costs.
fn parse(text: &str) -> Sample {
    let mut sample = Sample::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let value = value.split(' ').next().and_then(|value| value.parse::<f64>().ok());
        match name {
            "process_cpu_seconds_total" => sample.cpu_seconds = value,
            "process_resident_memory_bytes" => sample.resident_bytes = value.map(whole),
            "kvorum_allocated_bytes_total" => sample.allocated_bytes = value.map(whole),
            "kvorum_coordinator_hedges_total" => sample.hedges = value.map(whole),
            "kvorum_store_block_reads_total" => sample.block_reads = value.map(whole),
            "kvorum_store_compaction_pending_bytes" => sample.debt.compaction_pending_bytes = value.map(whole),
            "kvorum_store_level0_files" => sample.debt.level0_files = value.map(whole),
            "kvorum_store_memtables_waiting" => sample.debt.memtables_waiting = value.map(whole),
            "kvorum_store_stall_seconds_total" => sample.stall_seconds = value,
            "kvorum_store_flushed_bytes_total" => sample.flushed_bytes = value.map(whole),
            "kvorum_store_compacted_bytes_total" => sample.compacted_bytes = value.map(whole),
            "kvorum_store_written_bytes_total" => sample.written_bytes = value.map(whole),
            "kvorum_commit_sync_duration_seconds_count" => sample.commits = value.map(whole),
            "kvorum_commit_sync_duration_seconds_sum" => sample.commit_seconds = value,
            // Of those that took at most so long: the first that reaches as far.
            _ if sample.quick_commits.is_none()
                && commit_bucket(name).is_some_and(|seconds| seconds >= SLOW_COMMIT_SECONDS) =>
            {
                sample.quick_commits = value.map(whole);
            }
            _ => {}
        }
    }
    sample
}

/// Up to how long the commits took that this series counts, in seconds.
fn commit_bucket(name: &str) -> Option<f64> {
    name.strip_prefix("kvorum_commit_sync_duration_seconds_bucket{le=\"")?.strip_suffix("\"}")?.parse().ok()
}

/// What a page of metrics has under each of these names, over all labels; none for a name that is not on it.
pub(super) fn sums<'a>(text: &'a str, names: &[&str]) -> Vec<Option<f64>> {
    let parts = |line: &'a str| line.rsplit_once("} ").or_else(|| line.split_once(' '));
    let lines = || text.lines().filter(|line| !line.starts_with('#')).filter_map(parts);
    let of = |wanted: &&str| {
        let series = lines().filter(|(series, _)| series.split('{').next() == Some(wanted));
        let values = series.filter_map(|(_, value)| value.split(' ').next()?.parse::<f64>().ok());
        values.reduce(|sum, value| sum + value)
    };
    names.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::{Sample, parse, sums};

    #[test]
    fn metrics_of_the_process_are_found() {
        let text = "# HELP process_cpu_seconds Time\n# TYPE process_cpu_seconds counter\n\
            process_cpu_seconds_total 12.5\nprocess_resident_memory_bytes 1.5e6 1700000000\nother{a=\"b\"} 3\n\n";
        let expected = Sample { cpu_seconds: Some(12.5), resident_bytes: Some(1_500_000), ..Sample::default() };
        assert_eq!(parse(text), expected);
        assert_eq!(parse("<html> <body>"), Sample::default());
    }

    #[test]
    fn commits_are_slow_beyond_the_first_bucket_that_reaches_sixteen_milliseconds() {
        let name = "kvorum_commit_sync_duration_seconds";
        let text = format!(
            "{name}_sum 1.5\n{name}_count 90\n{name}_bucket{{le=\"0.008191\"}} 70\n\
             {name}_bucket{{le=\"0.016382999999999999\"}} 80\n{name}_bucket{{le=\"+Inf\"}} 90\n"
        );
        let expected =
            Sample { commits: Some(90), commit_seconds: Some(1.5), quick_commits: Some(80), ..Sample::default() };
        assert_eq!(parse(&text), expected);
    }

    #[test]
    fn figures_are_summed_over_their_labels() {
        let text = "# TYPE a counter\na_total{x=\"1\"} 2\na_total{x=\"2 3\"} 3\na_totals 7\nb 1.5\n";
        assert_eq!(sums(text, &["a_total", "b", "c"]), [Some(5.0), Some(1.5), None]);
    }
}
