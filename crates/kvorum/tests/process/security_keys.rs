//! Keys of clients: what each may do, what is said to whom, and that a change of the file is one.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::http::request;
use crate::support::secure::{Keys, ROLES, id_of, private, said};
use crate::support::{Client, Cluster, SOON, entity, kvorum, wait_until, wait_within};

/// Clients with keys of the roles of the tests, and one without.
struct Clients {
    operator: Client,
    app: Client,
    metrics: Client,
    nobody: Client,
}

fn clients(cluster: &Cluster, keys: &Keys) -> Clients {
    let [app, metrics] = ["app", "metrics"].map(|role| keys.add(role, role));
    cluster.reload(0);
    let with = |key: Option<&str>| cluster.client(0).key(key);
    Clients { operator: cluster.client(0), app: with(Some(&app)), metrics: with(Some(&metrics)), nobody: with(None) }
}

/// Spaces requests without a key: of more than five in a second the others get 429.
struct Pace;

impl Pace {
    /// Counts from the answer before: one that was late would have the next come at once.
    fn next(&self) {
        let answered = Instant::now();
        wait_until("another failure may come", || answered.elapsed() >= Duration::from_millis(250));
    }
}

/// Paths, what each needs, and whether it is open to all.
const PATHS: [(&str, &str, &str, bool); 16] = [
    ("GET", "/livez", "", true),
    ("GET", "/readyz", "", true),
    ("GET", "/v0/status", "", true),
    ("GET", "/metrics", "metrics", false),
    ("GET", "/v0/cluster", "status", false),
    ("GET", "/v0/stats", "status", false),
    ("GET", "/v0/layout?id=k", "status", false),
    ("GET", "/v0/slow", "status", false),
    ("GET", "/v0/hot", "status", false),
    ("GET", "/v0/repair", "status", false),
    ("POST", "/v0/repair", "repair", false),
    ("DELETE", "/v0/repair", "repair", false),
    ("POST", "/v0/scrub", "scrub", false),
    ("DELETE", "/v0/scrub", "scrub", false),
    ("POST", "/v0/backup", "backup", false),
    ("GET", "/v0/whoami", "", false),
];

#[test]
fn each_path_needs_what_the_table_says() {
    let (cluster, keys) = Cluster::secured(1, &[]);
    let Clients { mut operator, mut app, mut metrics, mut nobody } = clients(&cluster, &keys);
    let pace = Pace;
    for (method, target, needs, open) in PATHS {
        pace.next();
        let without = nobody.ok(method, target, None);
        if open {
            assert_eq!(without.status, 200, "{method} {target}: {without:?}");
            continue;
        }
        without.problem(401);
        assert_eq!(without.header("www-authenticate"), Some("Bearer realm=\"kvorum\""), "{target}");
        assert!((200..300).contains(&operator.ok(method, target, None).status), "{method} {target}");
        for (client, has) in [(&mut app, ""), (&mut metrics, "metrics")] {
            let answer = client.ok(method, target, None);
            if needs == has || needs.is_empty() {
                assert_eq!(answer.status, 200, "{method} {target}: {answer:?}");
            } else {
                assert_eq!(answer.problem(403)["needs"], needs, "{method} {target}");
            }
        }
    }
    for (method, key, right, status) in [
        ("PUT", "app/1", "write", 201),
        ("GET", "app/1", "read", 200),
        ("GET", "shared/1", "read", 404),
        ("PUT", "shared/1", "write", 403),
        ("DELETE", "shared/1", "delete", 403),
        ("GET", "app", "read", 403),
        ("GET", "other", "read", 403),
        ("DELETE", "app/1", "delete", 202),
    ] {
        let body = (method == "PUT").then_some(b"v".as_slice());
        let answer = app.ok(method, &entity(key), body);
        assert_eq!(answer.status, status, "{method} {key}: {answer:?}");
        if status == 403 {
            assert_eq!(answer.problem(403)["needs"], right);
            // It comes before anything is looked up: that there is something shows in nothing.
            operator.put(&entity(key), b"v");
            assert_eq!(app.ok(method, &entity(key), body).text(), answer.text());
        }
        metrics.ok(method, &entity(key), body).problem(403);
        pace.next();
        nobody.ok(method, &entity(key), body).problem(401);
    }
    for (range, status) in [
        ("start=app/&end=app0", 200),
        ("start=app/1&end=app/2", 200),
        ("start=app/", 403),
        ("start=app/&end=app1", 403),
        ("start=app&end=app0", 403),
        // Two grants that lie beside each other are not one.
        ("start=app/&end=shared0", 403),
    ] {
        assert_eq!(app.get(&format!("/v0/entities?{range}")).status, status, "{range}");
    }
}

#[test]
fn each_operation_of_a_batch_needs_the_right_over_its_key_and_counts_as_a_request() {
    let (cluster, keys) = Cluster::secured(1, &[]);
    let Clients { mut operator, mut app, mut nobody, .. } = clients(&cluster, &keys);
    operator.put(&entity("other"), b"v");
    let lines = [
        r#"{"op":"put","key":"app/1","value":"v"}"#,
        r#"{"op":"get","key":"other"}"#,
        r#"{"op":"put","key":"shared/1","value":"v"}"#,
        r#"{"op":"delete","key":"app/2"}"#,
    ];
    let body = lines.join("\n");
    let answer = app.ok("POST", "/v0/batch", Some(body.as_bytes())).text();
    let answers: Vec<serde_json::Value> =
        answer.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let statuses: Vec<u64> = answers.iter().map(|answer| answer["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [201, 403, 403, 202]);
    let needs: Vec<&serde_json::Value> = answers.iter().map(|answer| &answer["problem"]["needs"]).collect();
    assert_eq!((needs[1], needs[2]), (&"read".into(), &"write".into()));
    nobody.ok("POST", "/v0/batch", Some(body.as_bytes())).problem(401);
}

#[test]
fn refusals_come_in_their_order_and_say_what_to_do() {
    let (cluster, keys) = Cluster::secured(1, &[]);
    let mut client = cluster.client(0).key(None);
    let end = ["--not-after", "2020-01-01T00:00:00Z"];
    let expired = said(&[&["key", "new", "old", "--role", "app", "--file", keys.path()][..], &end].concat());
    let good = keys.add("app", "app");
    cluster.reload(0);
    let mut wrong_end = good.clone();
    wrong_end.replace_range(68.., if good.ends_with('0') { "1" } else { "0" });
    let unknown = Keys::new(cluster.root().join("other.toml")).add("x", "app");
    let pace = Pace;
    let mut said_of = |authorization: &str| {
        let refused = client.with("GET", &entity("app/1"), &[("Authorization", authorization)], None);
        refused.problem(401)["detail"].as_str().unwrap().to_owned()
    };
    for (authorization, says) in [
        (format!("Bearer {expired}"), "expired"),
        (format!("Bearer {unknown}"), "not known"),
        (format!("Bearer {wrong_end}"), "checksum"),
        (format!("Bearer {}", &good[..60]), "69 characters"),
        (good.clone(), "no `Bearer`"),
    ] {
        pace.next();
        let detail = said_of(&authorization);
        assert!(detail.contains(says) && !detail.contains(&good[17..60]), "{detail}");
    }
    pace.next();
    let in_query = cluster.client(0).key(None).get(&format!("{}&key={good}", entity("app/1"))).problem(400);
    assert!(in_query["detail"].as_str().unwrap().contains("Authorization: Bearer"), "{in_query}");
    // Before what is wrong with the request itself.
    let mut app = cluster.client(0).key(Some(&good));
    app.get("/v0/entity?id=other&ack=9").problem(400);
    app.get("/v0/entity?id=other&ack=1").problem(403);
    pace.next();
    cluster.client(0).key(None).get("/nothing").problem(401);
    app.get("/nothing").problem(400);
    // 16 KB of a header are too long for any request.
    let long = "x".repeat(16 * 1024);
    assert_eq!(cluster.client(0).with("GET", "/livez", &[("Authorization", &long)], None).status, 431);
    let whoami = app.get("/v0/whoami").json();
    assert_eq!((whoami["principal"].as_str(), whoami["role"].as_str()), (Some("app"), Some("app")));
    assert_eq!(whoami["grants"][0]["prefix"], "app/");
    // A reason and the nodes' names are for those who may see them.
    let receipt = |client: &mut Client| {
        let stored = client.with("PUT", &entity("app/1"), &[("Kvorum-Trace", "1")], Some(b"v"));
        stored.header("kvorum-replicas").unwrap().to_owned()
    };
    assert!(receipt(&mut app).starts_with("r0="));
    assert!(receipt(&mut cluster.client(0)).starts_with("http://"));
}

#[test]
fn a_flood_of_wrong_keys_is_answered_with_429_and_holds_up_nobody_with_a_right_one() {
    let (cluster, _keys) = Cluster::secured(1, &[]);
    let mut flood = cluster.client(0).key(None);
    let statuses: Vec<u16> = (0..50).map(|_| flood.get(&entity("k")).status).collect();
    assert_eq!(statuses[..5], [401; 5]);
    assert!(statuses.contains(&429), "{statuses:?}");
    let refused = flood.get(&entity("k"));
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    refused.problem(429);
    assert_eq!(cluster.client(0).put(&entity("k"), b"v").status, 201);
    assert_eq!(cluster.client(0).key(None).get("/livez").status, 200);
}

#[test]
fn a_principal_over_its_limit_gets_429_and_no_other_does() {
    let (cluster, keys) = Cluster::secured(1, &[]);
    let slow = keys.add("slow", "slow");
    cluster.reload(0);
    let mut client = cluster.client(0).key(Some(&slow));
    let statuses: Vec<u16> = (0..40).map(|_| client.get(&entity("app/1")).status).collect();
    let over = statuses.iter().filter(|status| **status == 429).count();
    assert!(over > 0 && statuses[0] == 404, "{statuses:?}");
    let refused = wait_within(SOON, "it is over its limit again", || {
        let answer = client.get(&entity("app/1"));
        (answer.status == 429).then_some(answer)
    });
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.problem(429)["limit"], "requests_per_second");
    cluster.client(0).put(&entity("app/1"), b"v");
    wait_until("the limit lets one through", || client.get(&entity("app/1")).status == 200);
    assert!(cluster.metric(0, "kvorum_auth_requests_total") > 40.0);
}

#[test]
fn a_revoked_key_is_over_within_six_seconds_on_open_connections_ranges_scans_and_queries_too() {
    // A query of 24 MB goes on for longer than the key has.
    let settings =
        [("KVORUM_LIMITS_SCAN_PAGE_BYTES", "4KiB"), ("KVORUM_SCAN_RATE", "1MiB"), ("KVORUM_SCRIPTS_ENABLED", "true")];
    let (cluster, keys) = Cluster::secured(1, &settings);
    let app = keys.add("app", "app");
    cluster.reload(0);
    let mut writer = cluster.client(0);
    for number in 0..2_000 {
        // More than sockets take by themselves.
        writer.put(&entity(format!("app/{number:05}")), &[b'v'; 12_000]);
    }
    let mut kept: Vec<Client> = (0..100).map(|_| cluster.client(0).key(Some(&app))).collect();
    assert!(kept.iter_mut().all(|client| client.get(&entity("app/00001")).status == 200));
    let mut scanner = cluster.client(0).key(Some(&app));
    for beyond in ["prefix=", "prefix=a", "start=app/", "start=app/&end=app1"] {
        scanner.get(&format!("/v0/scan?{beyond}")).problem(403);
        let source = b"function map() end";
        scanner.ok("POST", &format!("/v0/script?{beyond}"), Some(source)).problem(403);
    }
    let query = |prefix: &str| format!("{{\"prefix\":\"{prefix}\",\"select\":{{\"count\":{{}}}}}}");
    scanner.ok("POST", "/v0/query", Some(query("a").as_bytes())).problem(403);
    assert_eq!(scanner.ok("POST", "/v0/query", Some(query("app/0000").as_bytes())).status, 200);
    assert_eq!(scanner.get("/v0/scan?prefix=app/&limit=1").status, 200);
    // Readers that take one chunk and then wait.
    let bearer = format!("Bearer {app}");
    let streams = ["/v0/entities?start=app/&end=app0", "/v0/scan?prefix=app/"].map(|target| {
        let mut stream = cluster.client(0);
        stream.write(&request("GET", target, &[("Authorization", &bearer)], None)).unwrap();
        assert_eq!(stream.head().unwrap().status, 200);
        stream.chunk().unwrap().unwrap();
        stream
    });
    let mut asked = cluster.client(0).timeout(Duration::from_secs(60));
    let headers = [("Authorization", &*bearer)];
    asked.write(&request("POST", "/v0/query", &headers, Some(query("app/").as_bytes()))).unwrap();
    said(&["key", "revoke", id_of(&app), "--file", keys.path()]);
    let limit = Duration::from_secs(6);
    wait_within(limit, "every open connection is refused", || {
        kept.iter_mut().all(|client| client.get(&entity("app/00001")).status != 200).then_some(())
    });
    assert!(kept.iter_mut().all(|client| [401, 429].contains(&client.get(&entity("app/00001")).status)));
    asked.receive("POST").unwrap().problem(403);
    for mut stream in streams {
        let is_broken = loop {
            match stream.chunk() {
                Ok(Some(_)) => {}
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        assert!(is_broken, "it went on to its end, with a key that is revoked");
    }
    assert_eq!(cluster.client(0).get(&entity("app/00001")).status, 200);
}

#[test]
fn a_file_is_taken_whole_or_not_at_all_and_sighup_kills_nobody() {
    let (mut cluster, keys) = Cluster::secured(1, &[]);
    let good = std::fs::read_to_string(&keys.0).unwrap();
    let failed = |cluster: &Cluster| cluster.metric(0, "kvorum_auth_failed_reloads_total");
    for (text, says) in [
        (String::new(), "no `[[key]]`"),
        (good.replace("role = \"operator\"", "role = \"nobody\""), "no role is called `nobody`"),
        (good[..good.len() - 20].to_owned(), "line "),
        (good.replace("\"app/\"", "\"app/%zz\""), "`%` at its byte 4"),
        (good.replace("\"read\", \"write\"", "\"read\", \"own\""), "unknown variant `own`"),
    ] {
        let before = failed(&cluster);
        private(&keys.0, &text);
        cluster.signal(0, Signal::HUP);
        wait_until("the file is refused", || failed(&cluster) > before);
        assert!(cluster.log(0).contains(says), "{says}: {}", cluster.log(0));
        assert_eq!(cluster.client(0).get("/v0/cluster").status, 200, "the keys from before stay in force");
    }
    // Without a signal it is found as well.
    private(&keys.0, &good.replace("name = \"operator\"", "name = \"renamed\""));
    wait_within(Duration::from_secs(5), "the change is found", || {
        (cluster.client(0).get("/v0/whoami").json()["principal"] == "renamed").then_some(())
    });
    std::fs::set_permissions(&keys.0, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    let before = failed(&cluster);
    cluster.signal(0, Signal::HUP);
    wait_until("a file that others may read is refused", || failed(&cluster) > before);
    assert!(cluster.runs(0) && cluster.log(0).contains("chmod 600"));
}

#[test]
fn a_node_does_not_start_with_a_file_of_keys_that_it_cannot_take() {
    let cluster = Cluster::prepare(1, &[]);
    let path = cluster.root().join("keys.toml");
    let refused = || {
        let output = cluster.serve(0).env("KVORUM_AUTH_FILE", &path).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(said.contains("keys.toml"), "{said}");
        said
    };
    assert!(refused().contains("No such file"));
    private(&path, ROLES);
    assert!(refused().contains("kvorum key new"));
    private(&path, &format!("{ROLES}\n[[key]]\nid = \"x\"\nname = \"a\"\nsha256 = \"\"\nrole = \"app\"\n"));
    let lines = ROLES.lines().count();
    assert!(refused().contains(&format!("line {}", lines + 3)), "{}", refused());
    let config = cluster.root().join("kvorum.toml");
    std::fs::write(&config, format!("auth.file = {:?}\n", path.to_str().unwrap())).unwrap();
    let check = kvorum().arg("config").arg("check").arg(&config).output().unwrap();
    assert_eq!(check.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&check.stderr).contains("12 lower-case"), "{check:?}");
}

#[test]
fn the_audit_has_what_was_refused_and_ordered_and_a_changed_line_is_found() {
    let mut cluster = Cluster::prepare(1, &[]);
    let keys = cluster.guard();
    let (audit, secret) = (cluster.root().join("audit"), cluster.root().join("audit.secret"));
    said(&["secret", "new", secret.to_str().unwrap()]);
    cluster.set_all("KVORUM_AUDIT_FILE", audit.to_str().unwrap());
    cluster.set_all("KVORUM_AUDIT_SECRET_FILE", secret.to_str().unwrap());
    cluster.set_all("KVORUM_AUDIT_DATA", "writes");
    cluster.spawn_all();
    cluster.wait_whole();
    let mut nobody = cluster.client(0).key(None);
    nobody.put_refused(&entity("hidden-name"));
    cluster.client(0).put(&entity("hidden-name"), b"hidden-value");
    assert_eq!(cluster.client(0).ok("POST", "/v0/scrub", None).status, 200);
    keys.add("more", "app");
    cluster.reload(0);
    let text = || std::fs::read_to_string(&audit).unwrap();
    wait_until("all is written", || text().contains("added") && text().contains("/v0/scrub"));
    let lines: Vec<serde_json::Value> = text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find =
        |action: &str, outcome: &str| lines.iter().find(|line| line["action"] == action && line["outcome"] == outcome);
    let (refused, stored) = (find("PUT /v0/entity", "401").unwrap(), find("PUT /v0/entity", "201").unwrap());
    assert_eq!((refused["principal"].as_str(), stored["principal"].as_str()), (Some(""), Some("operator")));
    assert!(refused["key"] == stored["key"] && stored["key"].as_str().unwrap().len() == 64, "one key, one code");
    assert!(find("POST /v0/scrub", "200").is_some());
    assert!(!text().contains("hidden") && !text().contains("kvk_"), "{}", text());
    let verify = || kvorum().args(["audit", "verify"]).arg(&audit).output().unwrap();
    assert!(verify().status.success());
    // It is moved away and goes on in a new file.
    let moved = cluster.root().join("audit.1");
    std::fs::rename(&audit, &moved).unwrap();
    cluster.reload(0);
    wait_until("there is a new file", || audit.exists());
    nobody.put_refused(&entity("k"));
    wait_until("it goes on there", || text().contains("401"));
    let both = kvorum().args(["audit", "verify"]).arg(&moved).arg(&audit).output().unwrap();
    assert!(both.status.success(), "{both:?}");
    let changed = std::fs::read_to_string(&moved).unwrap().replacen("\"outcome\":\"401\"", "\"outcome\":\"201\"", 1);
    std::fs::write(&moved, changed).unwrap();
    let found = kvorum().args(["audit", "verify"]).arg(&moved).output().unwrap();
    assert_eq!(found.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&found.stderr).contains("was changed"), "{found:?}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&audit).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn keys_are_made_listed_rotated_and_explained_without_a_node() {
    let cluster = Cluster::prepare(1, &[]);
    let path = cluster.root().join("keys.toml");
    let keys = Keys::new(path.clone());
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"# A comment that stays.\n").unwrap();
    let first = keys.add("billing", "app");
    let second = said(&["key", "rotate", "billing", "--overlap", "24h", "--file", keys.path()]);
    let listed = said(&["key", "list", "--file", keys.path()]);
    let ends = |key: &str| {
        let line = listed.lines().find(|line| line.starts_with(id_of(key))).unwrap_or_else(|| panic!("{listed}"));
        line.rsplit("  ").next().unwrap().to_owned()
    };
    assert!(ends(&first).starts_with("20") && ends(&second) == "never", "{listed}");
    assert!(!listed.contains(&first[17..60]));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("# A comment that stays.") && !text.contains(&first[17..60]), "{text}");
    assert!(said(&["auth", "check", keys.path()]).contains("2 keys, 5 roles"));
    let explain = |key: &str, method: &str, id: &str| {
        let what = ["--key", id_of(key), "--method", method, "--id", id];
        let output = kvorum().args(["auth", "explain", keys.path()]).args(what).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said_of) = explain(&first, "PUT", "app/7");
    assert!(code == Some(0) && said_of.contains("prefix `app/`"), "{said_of}");
    let (code, said_of) = explain(&first, "PUT", "shared/7");
    assert!(code == Some(1) && said_of.contains("403"), "{said_of}");
    let wrong = kvorum().args(["key", "new", "x", "--role", "none", "--file", keys.path()]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "what is refused changes nothing");
}

#[test]
fn a_node_that_other_machines_reach_does_not_start_open() {
    let cluster = Cluster::prepare(2, &[]);
    let serve = || {
        let mut command = kvorum();
        command.args(["serve", "--listen", "0.0.0.0:1", "--advertise", &cluster.node(0).url(), "--data-dir"]);
        let list = format!("{},{}", cluster.node(0).url(), cluster.node(1).url());
        command.arg(&cluster.node(0).data_dir).args(["--cluster", &list]).output().unwrap()
    };
    let output = serve();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("auth.file and peer.secret_file are not set") && said.contains("--insecure"), "{said}");
}
