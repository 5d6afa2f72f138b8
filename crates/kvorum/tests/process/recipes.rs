//! The recipes of docs/how-to, run as they are written there: the commands are taken from the text, and only addresses
//! and paths are replaced.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::cluster::flip;
use crate::support::random::Random;
use crate::support::skew::Clocks;
use crate::support::{Cluster, SOON, entity, entity_at, kvorum, wait_until, wait_within};

/// `10.0.0.2` of the document.
const SUBJECT: usize = 1;
/// A vote comes back only when clocks have gone `skew_max` on, and here without help of hints and automatic rounds.
const SETTINGS: [(&str, &str); 4] = [
    ("KVORUM_COORDINATOR_DEADLINE", "1s"),
    ("KVORUM_REPAIR_INTERVAL", "24h"),
    ("KVORUM_CLOCK_SKEW_MAX", "1s"),
    ("KVORUM_HINTS_BYTES_MAX", "0"),
];

/// The commands of a page: what its code blocks in the language `sh` have, one a line, or on several that end with `\`.
fn commands(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("../../docs/how-to/{page}.md")).unwrap();
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let commands: Vec<String> = blocks
        .flat_map(|block| block.replace("\\\n", " ").lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>())
        .filter(|line| !line.is_empty())
        .collect();
    assert!(!commands.is_empty(), "no commands in {page}");
    commands
}

/// Writes the files that a page shows, for its commands to find: blocks of JSON and Lua, each behind its name.
fn write_files(page: &str, folder: &Path) {
    let text = std::fs::read_to_string(format!("../../docs/how-to/{page}.md")).unwrap();
    let parts: Vec<&str> = text.split("```").collect();
    for part in parts.chunks_exact(2) {
        let (before, (language, content)) = (part[0], part[1].split_once('\n').unwrap());
        if !["json", "lua"].contains(&language) {
            continue;
        }
        let named = before.split('`').skip(1).step_by(2).filter(|name| name.ends_with(&format!(".{language}")));
        let name = named.last().unwrap_or_else(|| panic!("{page}: a block of {language} has no name"));
        std::fs::write(folder.join(name), content).unwrap();
    }
}

/// A recipe for an operator of this cluster, with this node in trouble.
struct Recipe {
    commands: std::vec::IntoIter<String>,
    subject: usize,
}

impl Recipe {
    fn of(page: &str) -> Self {
        Self { commands: commands(page).into_iter(), subject: SUBJECT }
    }

    /// The next command's words; it must begin like this.
    #[track_caller]
    fn next(&mut self, cluster: &Cluster, begin: &str) -> Vec<String> {
        let command = self.commands.next().expect("another command");
        assert!(command.starts_with(begin), "{command}");
        let others = (0..cluster.len()).filter(|index| *index != self.subject);
        let names = [self.subject].into_iter().chain(others).zip(["10.0.0.2:8080", "10.0.0.1:8080", "10.0.0.3:8080"]);
        let path = |path: PathBuf| path.display().to_string();
        let with_paths = command
            .replace("/var/lib/kvorum", &path(cluster.node(self.subject).data_dir.clone()))
            .replace("/mnt/good/kvorum", &path(cluster.root().join("good")))
            .replace("/var/backups/kvorum-monday", &path(backup(cluster, self.subject)));
        let all =
            names.fold(with_paths, |text, (index, name)| text.replace(name, &cluster.node(index).address.to_string()));
        all.split_whitespace().map(str::to_owned).collect()
    }

    /// Runs the next command, where the page's files are; it must end well. Its output.
    #[track_caller]
    fn run(&mut self, cluster: &Cluster, begin: &str) -> String {
        let words = self.next(cluster, begin);
        let output: Output = match words[0].as_str() {
            "kvorum" => cluster.command(self.subject).args(&words[1..]).current_dir(cluster.root()).output().unwrap(),
            program => Command::new(program).args(&words[1..]).output().unwrap(),
        };
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{words:?}: {said}");
        said
    }

    /// Runs the next command, which is the node, until it is ready.
    #[track_caller]
    fn serve(&mut self, cluster: &mut Cluster) {
        let words = self.next(cluster, "kvorum serve ");
        let mut command = cluster.command(self.subject);
        command.args(&words[1..]);
        cluster.spawn_as(self.subject, command);
        cluster.wait_ready(self.subject);
    }
}

fn backup(cluster: &Cluster, index: usize) -> PathBuf {
    cluster.root().join(format!("backup-{index}"))
}

fn fill(cluster: &Cluster, name: &str) {
    for number in 0..100 {
        cluster.client(0).put(&entity_at(format!("{name} {number}"), 3, 3), b"v");
    }
}

/// Whether all three nodes hold these keys, and each may vote.
#[track_caller]
fn all_have(cluster: &Cluster, name: &str) {
    for number in 0..100 {
        assert_eq!(cluster.client(number % 3).value(&entity_at(format!("{name} {number}"), 3, 3)), b"v");
    }
}

#[track_caller]
fn wait_rebuilt(cluster: &Cluster, index: usize) {
    wait_within(2 * SOON, "the node votes again", || cluster.votes(index).then_some(()));
}

/// Puts a value, and flips a bit of it in a table of the node in trouble.
fn damage(cluster: &mut Cluster) -> Vec<u8> {
    let value = Random::new(1).bytes(200);
    cluster.client(0).put(&entity_at("damaged", 3, 3), &value);
    // Twice: what was in the log at the first start is in a table at the second.
    for _ in 0..2 {
        assert!(cluster.terminate(SUBJECT).success());
        cluster.restart(SUBJECT);
    }
    cluster.kill(SUBJECT);
    flip(&cluster.node(SUBJECT).data_dir.clone(), &value, "sst");
    cluster.restart(SUBJECT);
    cluster.wait_whole();
    value
}

#[test]
fn a_node_that_was_down_holds_everything_after_a_round() {
    let mut cluster = Cluster::with(3, &SETTINGS);
    fill(&cluster, "before");
    cluster.kill(SUBJECT);
    for number in 0..100 {
        cluster.client(0).put(&entity_at(format!("meanwhile {number}"), 2, 3), b"v");
    }
    cluster.restart(SUBJECT);
    cluster.wait_whole();
    // The last write must be old enough for a round to look at it.
    wait_until("a round brings what it missed", || {
        let mut recipe = Recipe::of("node-is-down");
        let said = recipe.run(&cluster, "kvorum status ");
        assert!(said.contains("is ready") && !said.contains("rebuilding"), "{said}");
        recipe.run(&cluster, "kvorum repair --wait ");
        cluster.try_local(SUBJECT).is_some_and(|held| held.len() == 200)
    });
    all_have(&cluster, "before");
    all_have(&cluster, "meanwhile");
}

#[test]
fn a_damaged_record_is_replaced_by_the_other_replicas() {
    let mut cluster = Cluster::with(3, &SETTINGS);
    let value = damage(&mut cluster);
    let said = Recipe::of("damaged-record").run(&cluster, "kvorum scrub ");
    assert!(said.contains("1 damaged, 1 of them replaced"), "{said}");
    assert_eq!(cluster.metric(SUBJECT, "kvorum_scrub_mended_total"), 1.0);
    assert_eq!(cluster.client(SUBJECT).value(&entity_at("damaged", 3, 3)), value, "all three have it");
}

#[test]
fn a_disk_that_can_still_be_read_is_exchanged() {
    let mut cluster = Cluster::with(3, &SETTINGS);
    fill(&cluster, "k");
    let mut recipe = Recipe::of("disk-fails");
    cluster.kill(SUBJECT);
    recipe.run(&cluster, "cp -a ");
    std::fs::remove_dir_all(&cluster.node(SUBJECT).data_dir).unwrap();
    recipe.serve(&mut cluster);
    cluster.wait_whole();
    assert!(cluster.votes(SUBJECT) && !cluster.status_text(0).contains("rebuilding"), "{}", cluster.status_text(0));
    all_have(&cluster, "k");
}

#[test]
fn a_node_is_replaced() {
    let mut cluster = Cluster::with(3, &SETTINGS);
    fill(&cluster, "k");
    let mut recipe = Recipe::of("replace-a-node");
    cluster.kill(SUBJECT);
    std::fs::remove_dir_all(&cluster.node(SUBJECT).data_dir).unwrap();
    let said = recipe.run(&cluster, "kvorum status ");
    assert!(said.contains(" up ") && !said.contains("rebuilding"), "{said}");
    recipe.serve(&mut cluster);
    wait_until("it rebuilds in place of another", || cluster.status_text(SUBJECT).contains("rebuilding"));
    wait_rebuilt(&cluster, SUBJECT);
    let said = recipe.run(&cluster, "kvorum status ");
    assert!(said.contains("is ready") && !said.contains("rebuilding"), "{said}");
    recipe.run(&cluster, "kvorum repair --wait ");
    assert_eq!(cluster.try_local(0), cluster.try_local(SUBJECT));
    all_have(&cluster, "k");
}

#[test]
fn a_node_that_cannot_be_scanned_is_rebuilt() {
    let mut cluster = Cluster::with(3, &SETTINGS);
    fill(&cluster, "k");
    let value = damage(&mut cluster);
    let repair = kvorum().args(["repair", "--wait", "--url", &cluster.node(0).url()]).output().unwrap();
    let said = String::from_utf8_lossy(&repair.stderr).into_owned();
    assert_eq!(repair.status.code(), Some(3), "{said}");
    assert!(said.contains(&format!("{} did not take part", cluster.node(SUBJECT).url())), "{said}");
    let mut recipe = Recipe::of("node-cannot-be-scanned");
    let said = recipe.run(&cluster, "kvorum status ");
    assert!(said.contains("is ready") && said.contains("cannot be scanned: stored data is damaged"), "{said}");
    assert!(said.contains("docs/how-to/node-cannot-be-scanned.md"), "{said}");
    assert_eq!(cluster.metric(SUBJECT, "kvorum_repair_unscannable"), 1.0);
    for index in 0..3 {
        cluster.client(index).put(&entity_at("meanwhile", 2, 3), b"v");
        assert_eq!(cluster.client(index).value(&entity("damaged")), value, "a quorum serves it");
    }
    assert!(cluster.terminate(SUBJECT).success());
    recipe.run(&cluster, "mv ");
    recipe.serve(&mut cluster);
    wait_until("it rebuilds", || cluster.status_text(SUBJECT).contains("rebuilding"));
    wait_rebuilt(&cluster, SUBJECT);
    recipe.run(&cluster, "kvorum repair --wait ");
    assert!(!cluster.status_text(SUBJECT).contains("cannot be scanned"));
    let held = cluster.try_local(0).expect("it can be read to the end");
    assert_eq!(held.len(), 102);
    assert!([SUBJECT, 2].iter().all(|index| cluster.try_local(*index).as_ref() == Some(&held)));
    all_have(&cluster, "k");
}

#[test]
fn a_backup_of_one_node_is_restored() {
    let mut cluster = Cluster::with(3, &SETTINGS);
    fill(&cluster, "before");
    let mut recipe = Recipe::of("back-up-and-restore");
    recipe.run(&cluster, "kvorum backup ");
    fill(&cluster, "after");
    cluster.kill(SUBJECT);
    std::fs::remove_dir_all(&cluster.node(SUBJECT).data_dir).unwrap();
    recipe.run(&cluster, "kvorum restore ");
    cluster.restart(SUBJECT);
    wait_until("it rebuilds", || cluster.status_text(SUBJECT).contains("restored from a backup of"));
    wait_rebuilt(&cluster, SUBJECT);
    recipe.run(&cluster, "kvorum repair --wait ");
    assert_eq!(cluster.try_local(0), cluster.try_local(SUBJECT));
    all_have(&cluster, "before");
    all_have(&cluster, "after");
}

#[test]
fn a_whole_cluster_is_restored() {
    let mut cluster = Cluster::with(3, &SETTINGS);
    fill(&cluster, "k");
    let of = |subject| Recipe { subject, ..Recipe::of("back-up-and-restore") };
    let mut recipes = [0, 1, 2].map(of);
    for recipe in &mut recipes {
        recipe.run(&cluster, "kvorum backup ");
        recipe.next(&cluster, "kvorum restore ");
        recipe.next(&cluster, "kvorum repair ");
    }
    fill(&cluster, "given up");
    cluster.kill_all();
    for recipe in &mut recipes {
        std::fs::remove_dir_all(&cluster.node(recipe.subject).data_dir).unwrap();
        recipe.run(&cluster, "kvorum restore ");
    }
    cluster.spawn_all();
    cluster.wait_whole();
    all_have(&cluster, "k");
    cluster.client(0).absent(&entity_at("given up 1", 3, 3));
}

#[test]
fn a_clock_that_jumps_fences_its_node_until_it_is_right() {
    let mut cluster = Cluster::prepare(3, &[("KVORUM_COORDINATOR_DEADLINE", "1s")]);
    let clocks = Clocks::prepare(&mut cluster);
    let right = Duration::from_secs(3_600);
    (0..3).for_each(|index| clocks.set(index, right));
    cluster.spawn_all();
    cluster.wait_whole();
    for jumped in [right + Duration::from_secs(120), right - Duration::from_secs(120)] {
        let mut recipe = Recipe::of("clock-jumps");
        fill(&cluster, "before");
        clocks.set(SUBJECT, jumped);
        let mut client = cluster.client(SUBJECT);
        wait_until("the node notices", || cluster.metric(SUBJECT, "kvorum_node_fenced") == 1.0);
        client.get("/readyz").problem(503);
        let refused = client.ok("PUT", &entity("k"), Some(b"through the fenced node")).problem(503);
        assert_eq!(refused["title"], "Fenced", "{refused}");
        let said = recipe.run(&cluster, "kvorum status ");
        assert!(said.contains("the clock is too far from most peers': set it right"), "{said}");
        for other in [0, 2] {
            cluster.client(other).put(&entity("k"), b"through another");
            cluster.client(other).ok("PUT", &entity_at("k", 3, 3), Some(b"needs it")).problem(504);
        }
        clocks.set(SUBJECT, right);
        wait_until("it frees itself", || cluster.is_ready(SUBJECT));
        client.put(&entity_at("k", 3, 3), b"by all");
        fill(&cluster, "after");
        all_have(&cluster, "before");
        all_have(&cluster, "after");
    }
    let fenced = cluster.log(SUBJECT).matches("clock is too far from most peers: fenced until it is set right").count();
    assert_eq!(fenced, 2, "once for each jump:\n{}", cluster.log(SUBJECT));
}

/// The orders of two customers, as the pages have them.
fn put_orders(cluster: &Cluster) {
    let mut client = cluster.client(0);
    for (key, status, total) in [
        ("anna/1", "open", "12.5"),
        ("anna/2", "open", "30"),
        ("anna/3", "done", "99"),
        ("ben/4", "open", "7"),
        ("ben/5", "done", "21"),
    ] {
        let value = format!("{{\"status\":\"{status}\",\"total\":{total}}}");
        client.put(&entity(format!("orders/{key}")), value.as_bytes());
    }
}

#[test]
fn each_query_of_the_page_counts_what_it_says() {
    let cluster = Cluster::start(3);
    put_orders(&cluster);
    write_files("query-the-data", cluster.root());
    let mut recipe = Recipe::of("query-the-data");
    let mut answer = |begin: &str| {
        let answer: Value = serde_json::from_str(&recipe.run(&cluster, begin)).unwrap();
        assert_eq!(answer["complete"], true, "{answer}");
        (answer["groups"].clone(), answer["not_json"].clone())
    };
    let totals = json!([{"group": "anna", "count": 2, "sum": 42.5}, {"group": "ben", "count": 1, "sum": 7}]);
    assert_eq!(answer("kvorum query totals.json "), (totals.clone(), json!(0)));
    let largest = json!([
        {"group": "done", "top": [{"key": "orders/anna/3", "value": 99}, {"key": "orders/ben/5", "value": 21}]},
        {"group": "open", "top": [{"key": "orders/anna/2", "value": 30}, {"key": "orders/anna/1", "value": 12.5}]},
    ]);
    assert_eq!(answer("kvorum query largest.json "), (largest, json!(0)));
    assert_eq!(answer("kvorum query fresh.json "), (json!([{"group": null, "count": 5}]), json!(0)));
    cluster.client(0).put(&entity("orders/ben/6"), b"total 7");
    assert_eq!(answer("kvorum query odd.json "), (json!([{"group": "6", "count": 1}]), json!(1)));
    assert_eq!(answer("kvorum query totals.json --timeout "), (totals, json!(1)));
}

#[test]
fn scripts_are_turned_on_node_by_node_and_give_what_the_page_shows() {
    let mut cluster = Cluster::start(3);
    put_orders(&cluster);
    cluster.client(0).put(&entity("texts/1"), b"The sea, the sea");
    cluster.client(0).put(&entity("texts/2"), b"Out at sea");
    cluster.set_all("KVORUM_SCRIPTS_ENABLED", "true");
    for subject in 0..3 {
        assert!(cluster.terminate(subject).success());
        cluster.restart(subject);
        let said = Recipe { subject, ..Recipe::of("run-scripts") }.run(&cluster, "kvorum status ");
        assert!(said.contains("is ready"), "{said}");
    }
    write_files("run-scripts", cluster.root());
    let mut recipe = Recipe::of("run-scripts");
    recipe.run(&cluster, "kvorum status ");
    let mut prints = |begin: &str, pairs: &[(&str, f64)], count: usize| {
        let said = recipe.run(&cluster, begin);
        let mut lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let trailer = lines.pop().unwrap();
        assert_eq!((&trailer["complete"], &trailer["count"]), (&json!(true), &json!(count)), "{trailer}");
        let found = lines.iter().map(|line| (line["key"].as_str().unwrap(), line["value"].as_f64().unwrap()));
        assert_eq!(found.collect::<Vec<_>>(), pairs);
    };
    prints("kvorum script words.lua ", &[("at", 1.0), ("out", 1.0), ("sea", 3.0), ("the", 2.0)], 2);
    prints("kvorum script averages.lua ", &[("done", 60.0), ("open", 16.5)], 5);
    cluster.client(0).put(&entity("orders/ben/6"), b"total 7");
    cluster.client(0).put(&entity("orders/ben/7"), br#"{"status":"open"}"#);
    let mut refused = cluster.command(0);
    refused.args(["script", "averages.lua", "--prefix", "orders/", "--url", &cluster.node(0).url()]);
    let refused = refused.current_dir(cluster.root()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("script:2: json.decode: "), "{said}");
    prints("kvorum script careful.lua ", &[("good", 5.0), ("orders/ben/6", 1.0), ("orders/ben/7", 1.0)], 7);
}
