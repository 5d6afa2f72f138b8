#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;

fn flags(flags: &[(&'static str, &str)]) -> Sources {
    Sources { flags: flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), ..Sources::default() }
}

fn environment(pairs: &[(&str, &str)]) -> Sources {
    let environment = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Sources { environment, ..Sources::default() }
}

fn file(text: &str) -> (tempfile::NamedTempFile, Sources) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let sources = Sources { file: Some(file.path().to_owned()), ..Sources::default() };
    (file, sources)
}

fn refusal(sources: &Sources) -> String {
    load(sources).unwrap_err().to_string()
}

fn own(listen: &str, cluster: &str, advertise: &str) -> Result<String, String> {
    let sources = flags(&[("listen", listen), ("cluster", cluster), ("advertise", advertise)]);
    load(&sources).map(|effective| effective.config.own.to_string()).map_err(|error| error.to_string())
}

const THREE: &str = "http://127.0.0.1:8082,http://127.0.0.1:8080/,HTTP://127.0.0.1:8081";

#[test]
fn without_any_source_a_node_is_a_cluster_of_itself_with_the_documented_defaults() {
    let config = load(&Sources::default()).unwrap().config;
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.own.as_str(), "http://127.0.0.1:8080");
    assert_eq!(config.members, [ClusterMember { url: config.own.clone(), weight: Count::default(), zone: None }]);
    assert_eq!((config.quorum.required(), config.quorum.replicas()), (1, 1));
    assert_eq!(config.durability, DurabilitySetting::Fsync);
    assert_eq!(config.memory_bytes.get(), 512 << 20);
    assert_eq!(config.limits.value_bytes_max.get(), 8 << 20);
    assert_eq!(config.coordinator.deadline, Duration::from_secs(5));
    assert_eq!(config.coordinator.hedge_budget.get(), 5);
    assert_eq!(config.clock_skew_max, Duration::from_secs(60));
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(config.runtime.shards.get(), cores.min(256));
}

#[test]
fn background_work_has_its_share_of_a_core_for_each_shard_and_one_core_at_most() {
    let share = |percent, shards| {
        let sources = flags(&[("runtime.background_cpu_percent", percent), ("runtime.shards", shards)]);
        load(&sources).unwrap().config.runtime.background_percent_of_a_core()
    };
    assert_eq!([("2", "1"), ("2", "8"), ("2", "64"), ("100", "256")].map(|(a, b)| share(a, b)), [2, 16, 100, 100]);
}

#[test]
fn names_and_variables_are_unique_and_every_default_is_allowed() {
    let names: HashSet<_> = SETTINGS.iter().map(|setting| setting.name).collect();
    let variables: HashSet<_> = SETTINGS.iter().map(Setting::variable).collect();
    assert_eq!((names.len(), variables.len()), (SETTINGS.len(), SETTINGS.len()));
    for setting in SETTINGS {
        (setting.set)(&mut Config::blank(), setting.default).unwrap();
    }
}

#[test]
fn every_setting_changes_the_configuration() {
    let other = |setting: &Setting| match setting.name {
        "listen" | "admin.listen" => "127.0.0.1:9",
        "http.allowed_hosts" => "kvorum.example.com",
        "http.allowed_origins" => "https://console.example.com",
        "cluster" | "advertise" => "http://127.0.0.1:8080",
        "data_dir" | "peer.secret_file" | "auth.file" | "audit.file" | "audit.secret_file" => "elsewhere",
        "peer.secret_optional" | "insecure" | "audit.strict" | "scripts.enabled" => "true",
        "scan.memory_bytes" => "77MiB",
        "auth.metrics" => "open",
        "audit.data" => "writes",
        "durability" => "os",
        "layout.zones" => "http://127.0.0.1:8080=north",
        "layout.weights" => "http://127.0.0.1:8080=3",
        "coordinator.read_fanout" => "all",
        "hints.age_max" => "7h",
        "limits.ttl_default" => "7s",
        "hints.rate" => "77KiB",
        "log.format" | "log.level" => {
            if setting.name == "log.format" {
                "json"
            } else {
                "error"
            }
        }
        name if ["bytes", "bytes_max", "rate"].iter().any(|unit| name.ends_with(unit)) => "77KiB",
        name if ["skew_max", "delay_max", "timeout", "deadline", "interval", "threshold"]
            .iter()
            .any(|unit| name.ends_with(unit)) =>
        {
            "7s"
        }
        _ => "77",
    };
    for setting in SETTINGS {
        let (mut before, mut after) = (Config::blank(), Config::blank());
        (setting.set)(&mut before, setting.default).unwrap();
        let value = if setting.name == "memory_bytes" { "77MiB" } else { other(setting) };
        let value = if setting.name == "commit.recent_versions_max" { "7777" } else { value };
        (setting.set)(&mut after, value).unwrap_or_else(|allowed| panic!("{}: {allowed}", setting.name));
        assert_ne!(format!("{before:?}"), format!("{after:?}"), "{}", setting.name);
    }
}

#[test]
fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
    let (_file, mut sources) = file("listen = \"127.0.0.1:1\"\ndata_dir = \"file\"\ndurability = \"os\"\n");
    sources.environment = environment(&[("KVORUM_LISTEN", "127.0.0.1:2"), ("KVORUM_DATA_DIR", "env")]).environment;
    sources.flags = flags(&[("listen", "127.0.0.1:3")]).flags;
    let Effective { config, entries, .. } = load(&sources).unwrap();
    assert_eq!(config.listen.port(), 3);
    assert_eq!(config.data_dir, PathBuf::from("env"));
    assert_eq!(config.durability, DurabilitySetting::Os);
    let origin = |name| entries.iter().find(|entry| entry.name == name).unwrap().origin.to_string();
    assert_eq!(origin("listen"), "flag --listen");
    assert_eq!(origin("data_dir"), "env KVORUM_DATA_DIR");
    assert!(origin("durability").starts_with("file /"));
    assert_eq!(origin("memory_bytes"), "default");
}

#[test]
fn what_is_printed_can_be_read_back_as_a_file() {
    let sources = flags(&[("cluster", THREE), ("replication.from", "2"), ("log.level", "debug")]);
    let first = load(&sources).unwrap();
    let printed: Vec<String> = first.entries.iter().map(SettingEntry::to_string).collect();
    let (_file, sources) = file(&printed.join("\n"));
    assert_eq!(format!("{:?}", load(&sources).unwrap().config.members), format!("{:?}", first.config.members));
    assert_eq!(load(&sources).unwrap().config.quorum, first.config.quorum);
    assert_eq!(load(&sources).unwrap().config.log.level, LogLevel::Debug);
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest_known_one() {
    let (_file, sources) = file("[limits]\nvalue_byte_max = 5\n");
    assert!(refusal(&sources).contains("unknown setting `limits.value_byte_max` (file /"));
    assert!(refusal(&sources).contains("did you mean `limits.value_bytes_max`?"));
    let (_file, sources) = file("[limit]\n");
    assert!(refusal(&sources).contains("unknown setting `limit`"));
    let text = refusal(&environment(&[("KVORUM_LIMITS_VALUE_BYTE_MAX", "5")]));
    assert_eq!(
        text,
        "unknown setting `KVORUM_LIMITS_VALUE_BYTE_MAX` (env KVORUM_LIMITS_VALUE_BYTE_MAX): \
         did you mean `KVORUM_LIMITS_VALUE_BYTES_MAX`?"
    );
}

#[test]
fn variables_of_the_command_line_and_of_others_are_not_settings() {
    load(&environment(&[("KVORUM_URL", "http://x"), ("KVORUM_CONFIG", "x"), ("PATH", "/bin")])).unwrap();
}

#[test]
fn what_kubernetes_sets_for_a_service_of_that_name_is_ignored_and_told() {
    let of_services = [
        ("KVORUM_SERVICE_HOST", "10.0.0.7"),
        ("KVORUM_SERVICE_PORT", "8080"),
        ("KVORUM_SERVICE_PORT_HTTP", "8080"),
        ("KVORUM_PORT", "tcp://10.0.0.7:8080"),
        ("KVORUM_PORT_8080_TCP", "tcp://10.0.0.7:8080"),
        ("KVORUM_PORT_8080_TCP_ADDR", "10.0.0.7"),
        ("KVORUM_HEADLESS_SERVICE_HOST", "10.0.0.8"),
        ("KVORUM_HEADLESS_SERVICE_PORT", "8080"),
        ("KVORUM_HEADLESS_PORT", "tcp://10.0.0.8:8080"),
        ("KVORUM_HEADLESS_PORT_8080_TCP_PROTO", "tcp"),
    ];
    let mut all = of_services.to_vec();
    all.extend([("KVORUM_DATA_DIR", "there"), ("KVORUM_URL", "http://x"), ("SERVICE_HOST", "x")]);
    let effective = load(&environment(&all)).unwrap();
    assert_eq!(effective.ignored, of_services.map(|(name, _)| name.to_owned()));
    assert_eq!(effective.config.data_dir, Path::new("there"));
    for unknown in ["KVORUM_HEADLESS_PORT", "KVORUM_X_PORT_TCP", "KVORUM_X_PORT_80_UDP", "KVORUM_SERVICE", "KVORUM_X"] {
        let text = refusal(&environment(&[(unknown, "1"), ("KVORUM_OTHER_SERVICE_HOST", "10.0.0.9")]));
        assert!(text.starts_with(&format!("unknown setting `{unknown}`")), "{text}");
    }
    assert!(SETTINGS.iter().all(|setting| !sources::is_of_a_service(&setting.variable(), &[])));
}

#[test]
fn a_bad_value_is_refused_with_its_setting_its_source_and_what_is_allowed() {
    assert_eq!(
        refusal(&environment(&[("KVORUM_MEMORY_BYTES", "63MiB")])),
        "memory_bytes = \"63MiB\" (env KVORUM_MEMORY_BYTES) is not allowed: \
         it takes a size from 64MiB to 1TiB, such as 8MiB, 1GiB or a number of bytes"
    );
    assert!(
        refusal(&flags(&[("durability", "maybe")]))
            .ends_with("(flag --durability) is not allowed: it takes one of fsync, os")
    );
    for (name, value) in [
        ("listen", "8080"),
        ("listen", "127.0.0.1:0"),
        ("listen", ":8080"),
        ("listen", "::1:8080"),
        ("cluster", "https://a:1"),
        ("cluster", "http://a:1/path"),
        ("cluster", "http://a:1,http://A:1/"),
        ("data_dir", ""),
        ("memory_bytes", "512MB"),
        ("memory_bytes", "99999999999999999999"),
        ("runtime.shards", "0"),
        ("coordinator.deadline", "5"),
        ("coordinator.deadline", "2h"),
        ("coordinator.hedge_budget_percent", "101"),
        ("replication.from", "none"),
        ("layout.zones", "http://a:1=no zone"),
        ("layout.weights", "http://a:1=0"),
        ("log.level", "loud"),
    ] {
        let text = refusal(&flags(&[(name, value)]));
        assert!(text.starts_with(&format!("{name} = \"{value}\" (flag --")) && text.contains("it takes "), "{text}");
    }
}

#[test]
fn all_problems_are_told_at_once_and_a_hidden_bad_value_too() {
    let (_file, mut sources) = file("durability = \"no\"\nlog.level = \"no\"\n");
    sources.flags = flags(&[("durability", "os")]).flags;
    assert_eq!(load(&sources).unwrap_err().problems.len(), 2);
}

#[test]
fn a_file_that_is_missing_or_malformed_is_named() {
    let sources = Sources { file: Some("/does/not/exist.toml".into()), ..Sources::default() };
    assert!(refusal(&sources).starts_with("/does/not/exist.toml: "));
    let (file, sources) = file("listen = \n");
    assert!(refusal(&sources).starts_with(&file.path().display().to_string()));
    assert!(refusal(&sources).contains("line 1"));
}

#[test]
fn a_file_takes_lists_tables_numbers_and_units() {
    let (_file, sources) = file(
        "cluster = [\"http://127.0.0.1:8080\", \"http://127.0.0.1:8081\"]\nmemory_bytes = 134217728\n\
         [coordinator]\ndeadline = \"250ms\"\n[layout.zones]\n\"http://127.0.0.1:8081\" = \"north\"\n\
         [layout.weights]\n\"http://127.0.0.1:8081\" = 2\n",
    );
    let config = load(&sources).unwrap().config;
    assert_eq!(config.memory_bytes.get(), 128 << 20);
    assert_eq!(config.coordinator.deadline, Duration::from_millis(250));
    let member = config.members.last().unwrap();
    assert_eq!(member.zone.as_ref().map(Zone::as_str), Some("north"));
    assert_eq!(member.weight.get(), 2);
    assert_eq!(config.members.first().unwrap().weight.get(), 1);
}

#[test]
fn the_cluster_is_the_same_whatever_the_order_and_spelling_of_its_urls() {
    let config = load(&flags(&[("cluster", THREE)])).unwrap().config;
    let urls: Vec<&str> = config.members.iter().map(|member| member.url.as_str()).collect();
    assert_eq!(urls, ["http://127.0.0.1:8080", "http://127.0.0.1:8081", "http://127.0.0.1:8082"]);
    assert_eq!((config.quorum.required(), config.quorum.replicas()), (2, 3));
}

#[test]
fn the_own_url_is_found_by_the_listen_address() {
    let url = |port: u16| Ok(format!("http://127.0.0.1:{port}"));
    assert_eq!(own("127.0.0.1:8081", THREE, ""), url(8081));
    assert_eq!(own("localhost:8081", THREE, ""), url(8081));
    assert_eq!(own("0.0.0.0:8082", THREE, ""), url(8082));
    assert_eq!(own("[::]:8082", THREE, ""), url(8082));
    assert_eq!(own("0.0.0.0:8085", "", ""), url(8085));
    assert_eq!(own("10.0.0.1:9", THREE, "http://127.0.0.1:8080/"), url(8080));
    assert_eq!(own("10.0.0.1:9", "", "http://node"), Ok("http://node:80".into()));
    assert_eq!(own("LOCALHOST:1", "http://localhost:1,http://127.0.0.1:1", ""), Ok("http://localhost:1".into()));
}

#[test]
fn an_own_url_outside_the_cluster_is_refused_with_what_to_do() {
    for (listen, advertise) in
        [("127.0.0.1:9000", ""), ("10.0.0.1:8080", ""), ("0.0.0.0:9000", ""), ("127.0.0.1:8080", "http://other:8080")]
    {
        let text = own(listen, THREE, advertise).unwrap_err();
        assert!(text.contains("not in the cluster http://127.0.0.1:8080,") && text.contains("`advertise`"), "{text}");
    }
    let text = own("0.0.0.0:1", "http://a:1,http://b:1", "").unwrap_err();
    assert!(text.contains("fits several URLs"), "{text}");
}

#[test]
fn settings_that_disagree_are_refused() {
    for (name, value, part) in [
        ("replication.from", "2", "more than the 1 nodes"),
        ("limits.value_bytes_max", "200MiB", "more than a quarter of memory_bytes"),
        ("coordinator.request_bytes_max", "1MiB", "no room for a value"),
        ("commit.queue_bytes_max", "8MiB", "no room for a value"),
    ] {
        assert!(refusal(&flags(&[(name, value)])).contains(part), "{name}");
    }
    let text = refusal(&flags(&[("cluster", THREE), ("layout.zones", "http://stranger:1=a")]));
    assert_eq!(text, "layout.zones names http://stranger:1, which is not in `cluster`");
}

/// A cluster of so many nodes, of which this is the first.
fn shape(memory: &str, shards: usize, nodes: u16) -> Config {
    let cluster: Vec<String> = (0..nodes).map(|node| format!("http://127.0.0.1:{}", 8080 + node)).collect();
    let shards = shards.to_string();
    let sources = flags(&[("memory_bytes", memory), ("runtime.shards", &shards), ("cluster", &cluster.join(","))]);
    load(&sources).unwrap().config
}

#[test]
fn everything_that_is_bounded_fits_into_memory_bytes_and_what_may_come_on_top() {
    for (memory, shards_max, nodes_max) in
        [("64MiB", 8, 3), ("128MiB", 16, 3), ("512MiB", 16, 5), ("4GiB", 64, 10), ("64GiB", 64, 10)]
    {
        for shards in (0..=6).map(|power| 1 << power).filter(|shards| *shards <= shards_max) {
            for nodes in 1..=nodes_max {
                let config = shape(memory, shards, nodes);
                let most = ByteSize(config.bounded_bytes());
                assert_eq!(config.excess_bytes(), None, "{memory}, {shards} shards, {nodes} nodes: {most}");
            }
        }
    }
    assert!(shape("64MiB", 2, 20).excess_bytes().is_some(), "a node that may take more says so");
}

#[test]
fn one_node_fits_into_memory_bytes_alone() {
    for memory in ["512MiB", "4GiB"] {
        let config = shape(memory, 16, 1);
        assert!(config.bounded_bytes() <= config.memory_bytes.0);
    }
}

#[test]
fn what_is_set_is_kept_and_the_rest_follows_from_memory_bytes() {
    let share = |memory: &str| load(&flags(&[("memory_bytes", memory)])).unwrap().config;
    let (small, large) = (share("64MiB"), share("1GiB"));
    assert!(small.commit.queue_bytes_max < large.commit.queue_bytes_max);
    assert!(small.commit.recent_versions_max < large.commit.recent_versions_max);
    assert!(small.coordinator.request_bytes_max < large.coordinator.request_bytes_max);
    let sources = [
        ("coordinator.request_bytes_max", "99MiB"),
        ("commit.queue_bytes_max", "98MiB"),
        ("peer.queue_bytes_max", "97MiB"),
        ("commit.recent_versions_max", "9600"),
    ];
    let Effective { config, entries, .. } = load(&flags(&sources)).unwrap();
    assert_eq!(config.coordinator.request_bytes_max.get(), 99 << 20);
    assert_eq!(config.commit.queue_bytes_max.get(), 98 << 20);
    assert_eq!(config.peer.queue_bytes_max.get(), 97 << 20);
    assert_eq!(config.commit.recent_versions_max.get(), 9600);
    // What these mean is decided later: by the terminal, and by each request.
    let is_word = |name| ["log.format", "http.allowed_hosts"].contains(&name);
    assert!(entries.iter().all(|entry| entry.value != "auto" || is_word(entry.name)));
}

#[test]
fn a_file_for_all_nodes_is_checked_without_looking_for_this_node() {
    let (shared, _) = file("cluster = \"http://a:1,http://b:1\"\n");
    check_file(shared.path()).unwrap();
    let (stray, _) = file("cluster = \"http://a:1,http://b:1\"\nlisten = \"c:1\"\n");
    assert!(check_file(stray.path()).is_err());
}

#[test]
fn sizes_are_shown_with_the_largest_unit_that_divides_them() {
    let shown = [1, 1024, 1536 << 10, 512 << 20, 1 << 40].map(|bytes| ByteSize(bytes).to_string());
    assert_eq!(shown, ["1B", "1KiB", "1536KiB", "512MiB", "1TiB"]);
}

#[test]
fn names_and_origins_of_browsers_are_read_and_what_is_none_is_refused() {
    let http = |name, value: &str| load(&flags(&[(name, value)])).map(|effective| effective.config.http);
    let hosts = |value| http("http.allowed_hosts", value).map(|http| http.allowed_hosts).ok();
    let names =
        |auto, names: &[&str]| Some(HostNames { auto, names: names.iter().map(|name| (*name).into()).collect() });
    assert_eq!(hosts("auto"), names(true, &[]));
    assert_eq!(hosts("auto, Kvorum.example.com."), names(true, &["kvorum.example.com"]));
    assert_eq!(hosts("a,b"), names(false, &["a", "b"]));
    for wrong in ["", ",", "a:80", "http://a", "*", "a b", "[::1]"] {
        assert_eq!(hosts(wrong), None, "{wrong}");
    }
    let origins = |value| http("http.allowed_origins", value).map(|http| http.allowed_origins).ok();
    assert_eq!(origins(""), Some(vec![]));
    let two = ["https://console.example.com", "http://[::1]:9000"].map(str::to_owned).to_vec();
    assert_eq!(origins("https://Console.example.com,http://[::1]:9000"), Some(two));
    for wrong in ["*", "null", "console.example.com", "https://a/", "https://a/b", "ftp://a", "https://", "https://a:0"]
    {
        assert_eq!(origins(wrong), None, "{wrong}");
    }
}

#[test]
fn a_node_is_not_open_to_other_machines_unless_somebody_asks_for_it() {
    const TWO: &str = "http://10.0.0.1:8080,http://10.0.0.2:8080";
    let exposure = |more: &[(&'static str, &str)]| {
        let sources = flags(&[&[("advertise", "http://10.0.0.1:8080")][..], more].concat());
        let exposure = load(&sources).unwrap().config.exposure();
        exposure.map_err(|error| error.to_string())
    };
    for own in ["127.0.0.1:8080", "127.1.2.3:8080", "[::1]:8080", "localhost:8080"] {
        assert_eq!(exposure(&[("listen", own), ("cluster", TWO)]), Ok(Exposure::Loopback), "{own}");
    }
    let (auth, secret) = (("auth.file", "keys"), ("peer.secret_file", "secret"));
    for other in ["0.0.0.0:8080", "10.0.0.1:8080", "[::]:8080", "node:8080"] {
        let alone = [("listen", other), ("cluster", "http://10.0.0.1:8080")];
        let two = [("listen", other), ("cluster", TWO)];
        let refused = exposure(&two).unwrap_err();
        assert!(refused.contains(other) && refused.contains("auth.file and peer.secret_file are not set"), "{refused}");
        assert!(refused.contains("kvorum key new") && refused.contains("kvorum secret new"), "{refused}");
        assert!(exposure(&[&two[..], &[auth]].concat()).unwrap_err().contains("peer.secret_file is not set"));
        assert!(exposure(&[&two[..], &[secret]].concat()).unwrap_err().contains("auth.file is not set"));
        assert_eq!(exposure(&[&two[..], &[auth, secret]].concat()), Ok(Exposure::Guarded));
        assert_eq!(exposure(&[&alone[..], &[auth]].concat()), Ok(Exposure::Guarded), "no peers, no secret");
        assert_eq!(exposure(&[&two[..], &[("insecure", "true")]].concat()), Ok(Exposure::Insecure));
    }
}
