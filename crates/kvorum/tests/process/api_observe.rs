//! What a node shows for the console and the command line: figures, slow requests, hot keys, where keys are.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{Cluster, entity, entity_at, wait_for, wait_until};

/// What `/metrics` has, by its name and the values of its labels.
fn exposed(text: &str) -> BTreeMap<String, f64> {
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let values: Vec<&str> = labels.split('"').skip(1).step_by(2).collect();
        let name = name.strip_prefix("kvorum_").unwrap_or(name);
        Some((format!("{name} {}", values.join(" ")).trim_end().to_owned(), value.parse().ok()?))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

/// What `/v0/stats` has, in the same way.
fn figures(stats: &Value) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for (name, value) in stats["metrics"].as_object().unwrap() {
        let Some(rows) = value.as_array() else {
            found.insert(name.clone(), value.as_f64().unwrap());
            continue;
        };
        let labels = stats["labels"][name].as_array().unwrap();
        for row in rows {
            let (value, words) = row.as_array().unwrap().split_last().unwrap();
            assert_eq!(words.len(), labels.len(), "{name}: {row}");
            let word = |(label, word): (&Value, &Value)| match word.as_u64() {
                Some(place) if label == "peer" => stats["peers"][usize::try_from(place).unwrap()].clone(),
                _ => word.clone(),
            };
            let words = labels.iter().zip(words).map(word);
            let words: Vec<String> = words.map(|word| word.as_str().unwrap().to_owned()).collect();
            found.insert(format!("{name} {}", words.join(" ")), value.as_f64().unwrap());
        }
    }
    found
}

#[test]
fn stats_are_what_metrics_say_in_eight_kib() {
    let cluster = Cluster::start(3);
    let mut client = cluster.client(0);
    for number in 0..50 {
        client.put(&entity(format!("k{number}")), b"v");
        // One replica alone may not have it yet.
        client.get(&entity_at(format!("k{number}"), 1 + number % 3, 3));
    }
    // These say the same twice, where nothing happens between the two pages but the pages: answers that come late are
    // counted, too, and then it is looked at again.
    let quiet =
        ["coordinator_", "hints_", "commit_answers", "store_state", "node_", "repair_", "insecure", "build_info"];
    let is_quiet = |name: &str| quiet.iter().any(|begin| name.starts_with(begin)) && !name.contains("rate_bytes");
    let still = |shown: &Value| -> BTreeMap<String, f64> {
        figures(shown).into_iter().filter(|(name, _)| is_quiet(name)).collect()
    };
    let (stats, text) = wait_for("nothing happens between two pages", || {
        let (stats, text) = (client.get("/v0/stats"), client.get("/metrics").text());
        (still(&stats.json()) == still(&client.get("/v0/stats").json())).then_some((stats, text))
    });
    let shown = stats.json();
    assert!(stats.body.len() <= 8 << 10, "{} bytes", stats.body.len());
    assert_eq!(shown["node"], cluster.node(0).url());
    assert_eq!(shown["ready"], json!(true));
    let (figures, exposed) = (figures(&shown), exposed(&text));
    let compared = still(&shown);
    assert!(compared.len() > 8, "{compared:?}");
    for (name, value) in &compared {
        assert_eq!(exposed.get(name), Some(value), "{name}");
    }
    for name in figures.keys() {
        assert!(exposed.contains_key(name), "{name} is not in:\n{text}");
    }
    // What is left out is zero, except for buckets, which are elsewhere.
    for (name, value) in exposed.iter().filter(|(name, _)| is_quiet(name)) {
        assert!(*value == 0.0 || figures.contains_key(name), "{name} is {value}");
    }
    let series = &shown["histograms"]["http_request_duration_seconds"];
    assert_eq!(series["labels"], json!(["method", "class"]));
    let counted = |class: &str| -> u64 {
        let rows = series["values"].as_array().unwrap().iter();
        let rows = rows.filter(|row| row[0] == "GET" && row[1] == class);
        rows.flat_map(|row| row[3].as_array().unwrap()).map(|bucket| bucket[1].as_u64().unwrap()).sum()
    };
    assert_eq!([counted("below"), counted("quorum")], [17, 17]);
    assert!(counted("all") >= 16, "the wait for the cluster reads at all of them as well: {series}");
    let buckets = text.lines().filter(|line| line.contains("request_duration_seconds_bucket{le=\"0.000064\""));
    assert!(buckets.count() > 1, "{text}");
}

#[test]
fn the_layout_says_where_a_key_is_and_so_does_a_receipt() {
    let cluster = Cluster::start(3);
    let mut client = cluster.client(0);
    let whole = client.get("/v0/layout").json();
    let nodes: Vec<&str> =
        whole["nodes"].as_array().unwrap().iter().map(|node| node["url"].as_str().unwrap()).collect();
    let preference = decoded(whole["preference"].as_str().unwrap());
    assert_eq!((preference.len(), whole["from"].as_u64()), (4096 * 3, Some(3)));
    for key in ["a", "b c", "ä/\n\"", "user:7"] {
        client.put(&entity(key), b"v");
        let one = client.get(&entity(key).replace("entity", "layout")).json();
        let partition = usize::try_from(one["partition"].as_u64().unwrap()).unwrap();
        let row = preference[partition * 3..][..3].iter().map(|node| nodes[usize::from(*node)]);
        assert_eq!(one["replicas"], json!(row.collect::<Vec<_>>()), "{key:?}");
        let traced = client.with("GET", &entity_at(key, 3, 3), &[("Kvorum-Trace", "1")], None);
        let receipt = traced.header("kvorum-replicas").unwrap_or_else(|| panic!("{traced:?}"));
        let nodes: Vec<&str> = receipt.split(", ").map(|part| part.split('=').next().unwrap()).collect();
        assert_eq!(json!(nodes), one["replicas"]);
    }
    client.get("/v0/layout?id=").problem(400);
    client.get("/v0/layout?key=a").problem(400);
    client.ok("POST", "/v0/layout", None).problem(405);
}

#[test]
fn a_slow_request_is_kept_with_what_each_replica_did_and_a_504_counts_whom_it_lacked() {
    let cluster = Cluster::with(3, &[("KVORUM_COORDINATOR_DEADLINE", "1s"), ("KVORUM_SLOW_THRESHOLD", "300ms")]);
    let mut client = cluster.client(0);
    client.put(&entity("quick"), b"v");
    let asleep = cluster.node(2).url();
    cluster.pause(2);
    assert_eq!(client.ok("PUT", &entity_at("slow", 3, 3), Some(b"v")).status, 504);
    let page = wait_for("the request is kept", || {
        let page = cluster.client(0).get("/v0/slow").json();
        let has = page["requests"].as_array().unwrap().iter().any(|request| request["status"] == 504);
        has.then_some(page)
    });
    let missing = format!(
        "kvorum_coordinator_not_enough_replicas_total{{operation=\"write\",cause=\"no-answer\",peer=\"{asleep}\"}}"
    );
    assert!(cluster.metric(0, &missing) >= 1.0);
    cluster.resume(2);
    assert_eq!(page["threshold_ms"], 300.0);
    let requests = page["requests"].as_array().unwrap();
    let where_is = cluster.client(1).get("/v0/layout?id=slow").json();
    let slow = requests.iter().find(|request| request["status"] == 504).unwrap();
    assert_eq!(
        (&slow["operation"], &slow["class"], &slow["ack"], &slow["from"]),
        (&json!("PUT"), &json!("all"), &json!(3), &json!(3))
    );
    assert_eq!((&slow["hash"], &slow["partition"]), (&where_is["hash"], &where_is["partition"]));
    assert!(slow["ms"].as_f64().unwrap() >= 900.0 && slow["commit_ms"].as_f64().unwrap() < 900.0, "{slow}");
    for replica in slow["receipt"].as_array().unwrap() {
        let expected = if replica["node"] == asleep { "no-answer" } else { "accepted" };
        assert_eq!((replica["outcome"].as_str(), replica["ms"].is_null()), (Some(expected), replica["node"] == asleep));
    }
    assert!(requests.iter().all(|request| request["ms"].as_f64().unwrap() >= 300.0), "{page}");
}

#[test]
fn hot_keys_come_first_by_name_only_for_who_may_read_all() {
    let (mut cluster, keys) = Cluster::secured(1, &[]);
    let observer = keys.add("observer", "observer");
    cluster.reload(0);
    let mut client = cluster.client(0);
    let hot = wait_for("a window of ten seconds has ended", || {
        for number in 0..200 {
            client.put(&entity("hot \"key\""), b"v");
            client.put(&entity(format!("cold {number}")), b"v");
        }
        let page = cluster.client(0).get("/v0/hot").json();
        (page["keys"].as_array().unwrap().len() > 1).then_some(page)
    });
    let (first, second) = (&hot["keys"][0], &hot["keys"][1]);
    assert_eq!((first["key"].as_str(), first["key_base64"].is_null()), (Some("hot \"key\""), true), "{hot}");
    assert!(first["count"].as_u64() > second["count"].as_u64(), "{hot}");
    let counts = decoded(hot["partitions"].as_str().unwrap());
    let counts: Vec<u32> = counts.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    let most = (0..counts.len()).max_by_key(|partition| counts[*partition]);
    assert_eq!((counts.len(), most.map(|most| most as u64)), (4096, first["partition"].as_u64()));
    cluster.set_key(&observer);
    let hidden = cluster.client(0).get("/v0/hot").json();
    for key in hidden["keys"].as_array().unwrap() {
        assert!(key["key"].is_null() && key["key_base64"].is_null() && key["hash"].is_string(), "{key}");
    }
    wait_until("an idle node has no hot keys", || {
        cluster.client(0).get("/v0/hot").json()["keys"].as_array().unwrap().is_empty()
    });
}

/// Base64 (RFC 4648, 4).
fn decoded(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |byte: u8| ALPHABET.iter().position(|known| *known == byte).unwrap();
    let text = text.trim_end_matches('=').as_bytes();
    let decode = |four: &[u8]| {
        let bits = four.iter().fold(0, |bits, byte| bits << 6 | digit(*byte)) << (6 * (4 - four.len()));
        let bytes = u32::try_from(bits).unwrap().to_be_bytes();
        bytes[1..four.len()].to_vec()
    };
    text.chunks(4).flat_map(decode).collect()
}
