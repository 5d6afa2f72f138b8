//! What operators ask Prometheus, asked of a real one that scrapes real nodes.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::alerts::ALERTS;
use crate::board::queries;
use crate::support::cluster::free_port;
use crate::support::http::encode;
use crate::support::{Client, Cluster, entity, entity_at, wait_until, wait_within};

/// A server that scrapes once a second, and ends with this.
struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Prometheus {
    fn start(cluster: &Cluster) -> Option<Self> {
        let targets: Vec<String> =
            (0..cluster.len()).map(|index| cluster.node(index).url()["http://".len()..].to_owned()).collect();
        let config = format!(
            "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: kvorum\n    static_configs:\n      - targets: {targets:?}\n"
        );
        let root = cluster.root();
        std::fs::write(root.join("prometheus.yml"), config).unwrap();
        let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
        let spawned = Command::new("prometheus")
            .arg(format!("--config.file={}", root.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", root.join("prometheus").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = spawned else {
            eprintln!("SKIPPED: prometheus is missing (Debian: prometheus); no query is evaluated here");
            return None;
        };
        let prometheus = Self { process, address };
        wait_within(Duration::from_secs(30), "prometheus is ready", || {
            prometheus.ask("/-/ready").filter(|answer| answer.0 == 200)
        });
        Some(prometheus)
    }

    fn ask(&self, target: &str) -> Option<(u16, String)> {
        let answer = Client::new(self.address).send("GET", target, &[], None).ok()?;
        Some((answer.status, answer.text()))
    }

    /// How many series a query gives, or why it cannot be evaluated.
    fn series(&self, query: &str) -> Result<usize, String> {
        let (status, text) =
            self.ask(&format!("/api/v1/query?query={}", encode(query.as_bytes()))).ok_or("no answer")?;
        let answer: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let result = answer["data"]["result"].as_array().filter(|_| status == 200);
        result.map(Vec::len).ok_or_else(|| format!("{query}: {text}"))
    }

    /// Waits until every query has data.
    fn answers_all(&self, when: &str) {
        for query in ALERTS.iter().map(|alert| alert.value.to_owned()).chain(queries()) {
            wait_within(Duration::from_secs(30), &format!("{when}, `{query}` has data"), || {
                let series = self.series(&query).unwrap_or_else(|error| panic!("{error}"));
                (series > 0).then_some(())
            });
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What has never happened has no series: requests of each method, class and kind of answer.
fn have_everything_happen(cluster: &Cluster) {
    let mut client = cluster.client(0);
    cluster.pause(2);
    assert_eq!(client.ok("PUT", &entity_at("k", 3, 3), Some(b"v")).status, 504);
    assert_eq!(client.ok("GET", &entity_at("k", 3, 3), None).status, 504);
    cluster.resume(2);
    wait_until("the node that was asleep is back", || {
        client.put(&entity("k"), b"v");
        client.ok("GET", &entity_at("k", 3, 3), None).status == 200
    });
    for ack in 1..=3 {
        client.put(&entity_at("k", ack, 3), b"v");
        client.value(&entity_at("k", ack, 3));
        client.delete(&entity_at("gone", ack, 3));
    }
    client.absent(&entity("nothing"));
    // Until a round has proven all partitions there is no time of the last proof.
    wait_within(Duration::from_secs(30), "all partitions are proven", || {
        client.ok("POST", "/v0/repair", None);
        let page = client.get("/v0/repair").json();
        page["watermark"]["lowest_ms"].as_u64().filter(|lowest| *lowest > 0)
    });
    client.get("/v0/entity").problem(400);
    client.ok("POST", "/v0/backup", None);
    assert_eq!(client.ok("POST", "/v0/backup", None).status, 503);
    client.with(
        "POST",
        "/v0/batch",
        &[("Content-Type", "application/x-ndjson")],
        Some(b"{\"op\":\"get\",\"key\":\"k\"}\n"),
    );
}

#[test]
fn every_query_has_data_with_all_nodes_and_with_one_stopped() {
    let mut cluster = Cluster::prepare(3, &[("KVORUM_AUTH_METRICS", "open"), ("KVORUM_COORDINATOR_DEADLINE", "1s")]);
    cluster.guard();
    let audit = cluster.root().join("audit.log");
    cluster.set_all("KVORUM_AUDIT_FILE", audit.to_str().unwrap());
    cluster.spawn_all();
    cluster.wait_whole();
    let Some(prometheus) = Prometheus::start(&cluster) else { return };
    have_everything_happen(&cluster);
    prometheus.answers_all("with all nodes");
    cluster.kill(2);
    cluster.client(0).put(&entity("k"), b"v");
    wait_within(Duration::from_secs(30), "the stopped node is seen as down", || {
        prometheus.series("up{job=\"kvorum\"} == 0").ok().filter(|series| *series == 1)
    });
    prometheus.answers_all("with a node stopped");
}
