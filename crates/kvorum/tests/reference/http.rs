//! `http.md`, from the tables that requests are judged by; the fields of pages of JSON, from real ones.

use std::collections::BTreeSet;

use kvorum_http::routes::{ROUTES, Route};
use kvorum_http::{ERRORS, ErrorKind, HEAD_TOO_LARGE};
use serde_json::Value;

use crate::support::{Cluster, wait_until};
use crate::{code, hold, page, table};

/// A path's section.
fn section(route: &Route) -> String {
    let mut text = format!("### `{}`\n\n{}\n\n", route.path, route.meaning);
    if !route.parameters.is_empty() {
        let rows = route.parameters.iter().map(|one| [code(one.name), one.meaning.to_owned()]);
        text += &(table(["parameter", "meaning"], rows) + "\n");
    }
    let rows = route.answers.iter().map(|one| [one.methods.to_owned(), one.status.to_string(), one.meaning.to_owned()]);
    text + &table(["methods", "status", "when, and the body"], rows)
}

#[test]
fn paths_and_errors() {
    let rows = ROUTES.iter().map(|route| [code(route.path), route.allow.to_owned(), route.meaning.to_owned()]);
    let sections: Vec<String> = ROUTES.iter().map(section).collect();
    let errors = ERRORS.iter().chain([&HEAD_TOO_LARGE]).map(|ErrorKind { status, title, when, members }| {
        let members: Vec<String> = members.iter().map(|name| code(name)).collect();
        [status.to_string(), (*title).to_owned(), (*when).to_owned(), members.join(", ")]
    });
    hold(
        "http.md",
        &[
            ("paths", table(["path", "methods", "what is there"], rows)),
            ("each path", sections.join("\n")),
            ("errors", table(["status", "title", "when", "members of its own"], errors)),
        ],
    );
}

/// The names in an object, in those that it holds too.
fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.keys().cloned());
            members.values().for_each(|value| names(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

#[test]
fn every_field_of_the_pages_of_json_is_named() {
    let cluster = Cluster::start(2);
    let mut client = cluster.client(0);
    client.ok("POST", "/v0/repair", None);
    wait_until("a round is over", || !cluster.client(0).get("/v0/repair").json()["last"].is_null());
    let text = std::fs::read_to_string(page("http.md")).unwrap();
    let mut guarded = Cluster::prepare(2, &[]);
    guarded.guard();
    guarded.spawn_all();
    guarded.wait_whole();
    for (of, path, heading) in [
        (&cluster, "/v0/cluster", "## The cluster's page"),
        (&cluster, "/v0/repair", "## The page of rounds"),
        (&cluster, "/v0/layout", "## Where keys are"),
        (&cluster, "/v0/layout?id=k", "## Where keys are"),
        (&cluster, "/v0/slow", "## Slow requests"),
        (&cluster, "/v0/hot", "## Hot keys"),
        (&guarded, "/v0/whoami", "## Whose key this is"),
    ] {
        let section = text.split(heading).nth(1).unwrap_or_else(|| panic!("no {heading}"));
        let section = section.split("\n## ").next().unwrap();
        let mut found = BTreeSet::new();
        names(&of.client(0).get(path).json(), &mut found);
        let missing: Vec<_> = found.iter().filter(|name| !section.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "{heading} does not name {missing:?}");
    }
}
