//! `metrics.md`, from the page that a node answers.

use std::collections::BTreeMap;

use crate::support::{Cluster, entity};
use crate::{code, hold, sentence, table};

/// Groups by how names begin; the node's own are what is left.
const GROUPS: [(&str, &str); 10] = [
    ("process_", "Process"),
    ("kvorum_http_", "HTTP"),
    ("kvorum_coordinator_", "Coordinator"),
    ("kvorum_peer_", "Peers"),
    ("kvorum_hints_", "Hints"),
    ("kvorum_commit_", "Commit"),
    ("kvorum_repair_", "Anti-entropy"),
    ("kvorum_store_", "Store"),
    ("kvorum_scrub_", "Scrub"),
    ("kvorum_", "Node"),
];

#[derive(Default)]
struct Family {
    name: String,
    help: String,
    kind: String,
    labels: Vec<String>,
}

/// The page's families, in its order.
fn families(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", "HELP", name, help] => {
                families.push(Family { name: (*name).into(), help: sentence(help), ..Family::default() });
            }
            ["#", "TYPE", _, kind] => families.last_mut().unwrap().kind = (*kind).into(),
            ["#", ..] => {}
            _ => {
                let Some((_, labels)) = line.split_once('{') else { continue };
                // Each before its `="`; behind the last of these comes no name.
                let mut names: Vec<&str> =
                    labels.split("=\"").map(|part| part.rsplit([',', '"']).next().unwrap()).collect();
                names.pop();
                let family = families.last_mut().unwrap();
                for name in names.into_iter().filter(|name| *name != "le") {
                    if !family.labels.iter().any(|known| known == name) {
                        family.labels.push(name.to_owned());
                    }
                }
            }
        }
    }
    families
}

#[test]
fn metrics() {
    let cluster = Cluster::start(2);
    cluster.client(0).put(&entity("k"), b"v");
    let mut groups: BTreeMap<usize, Vec<[String; 4]>> = BTreeMap::new();
    for family in families(&cluster.client(0).get("/metrics").text()) {
        let group = GROUPS.iter().position(|(prefix, _)| family.name.starts_with(prefix)).unwrap();
        let name = if family.kind == "counter" { format!("{}_total", family.name) } else { family.name };
        let labels: Vec<String> = family.labels.iter().map(|label| code(label)).collect();
        groups.entry(group).or_default().push([code(&name), family.kind, labels.join(", "), family.help]);
    }
    let sections = groups.into_iter().map(|(group, rows)| {
        format!("## {}\n\n{}", GROUPS[group].1, table(["metric", "type", "labels", "meaning"], rows))
    });
    hold("metrics.md", &[("metrics", sections.collect::<Vec<_>>().join("\n"))]);
}
