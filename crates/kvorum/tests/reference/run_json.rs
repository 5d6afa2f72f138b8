//! `run.json`, from the structs that it is made of, and held to a real one.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fields::{Field, declared};
use crate::support::{Cluster, kvorum};
use crate::{code, hold, table};

const FILES: [&str; 6] = [
    "crates/load/src/report/document.rs",
    "crates/load/src/report/percentiles.rs",
    "crates/load/src/report/windows.rs",
    "crates/load/src/report/verdict.rs",
    "crates/load/src/nodes/sample.rs",
    "crates/load/src/nodes/debt_row.rs",
];

/// Types that are no object.
const PLAIN: [(&str, &str); 8] = [
    ("String", "text"),
    ("bool", "boolean"),
    ("u8", "number"),
    ("u64", "number"),
    ("f64", "number"),
    ("u32", "number"),
    ("RateAsked", "number, or `max`"),
    ("Source", "`proc`, `metrics` or `none`"),
];

/// What is inside `Outer<…>`.
fn inside<'a>(kind: &'a str, outer: &str) -> Option<&'a str> {
    kind.strip_prefix(outer)?.strip_prefix('<')?.strip_suffix('>')
}

/// The type of the values, whether there is one, many or perhaps none.
fn innermost(kind: &str) -> &str {
    let outer = ["Option", "Vec", "BTreeMap"];
    let inner = outer.iter().find_map(|outer| inside(kind, outer));
    inner.map_or(kind, |inner| innermost(inner.strip_prefix("String, ").unwrap_or(inner)))
}

fn shown(field: &Field, kind: &str) -> String {
    if let Some(inner) = inside(kind, "Option") {
        let or = if field.may_be_absent() { "absent" } else { "`null`" };
        return format!("{}, or {or}", shown(field, inner));
    }
    if let Some(inner) = inside(kind, "Vec") {
        return format!("list of {}", shown(field, inner));
    }
    if let Some(inner) = inside(kind, "BTreeMap").and_then(|inner| inner.strip_prefix("String, ")) {
        return format!("by name: {}", shown(field, inner));
    }
    let plain = PLAIN.iter().find(|(name, _)| *name == kind).map(|(_, shown)| (*shown).to_owned());
    plain.unwrap_or_else(|| format!("[{kind}](#{})", kind.to_lowercase()))
}

fn structure(name: &str) -> (String, Vec<Field>) {
    FILES.iter().find_map(|file| declared(file, name)).unwrap_or_else(|| panic!("no file declares {name}"))
}

/// Its fields, with those of flat ones in their place.
fn fields(name: &str) -> Vec<Field> {
    let each = |field: Field| if field.is_flat() { fields(&field.kind) } else { vec![field] };
    structure(name).1.into_iter().flat_map(each).collect()
}

/// This struct and all that it holds, each once.
fn structs(name: &str, found: &mut Vec<String>) {
    if PLAIN.iter().any(|(plain, _)| *plain == name) || found.iter().any(|known| known == name) {
        return;
    }
    found.push(name.to_owned());
    for field in fields(name) {
        structs(innermost(&field.kind), found);
    }
}

#[test]
fn run_json() {
    let mut all = Vec::new();
    structs("Document", &mut all);
    let section = |name: &String| {
        let rows = fields(name).into_iter().map(|field| [code(&field.name), shown(&field, &field.kind), field.doc]);
        format!("## {name}\n\n{}\n\n{}", structure(name).0, table(["field", "type", "meaning"], rows))
    };
    let sections: Vec<String> = all.iter().map(section).collect();
    hold("run-json.md", &[("fields", sections.join("\n"))]);
}

/// Complains of what an object has, or lacks, against its struct.
fn compare(name: &str, value: &Value, complaints: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| compare(name, item, complaints)),
        Value::Object(members) => {
            let fields = fields(name);
            let unknown = members.keys().filter(|key| fields.iter().all(|field| field.name != **key));
            complaints.extend(unknown.map(|key| format!("{name} has no {key}")));
            for field in fields {
                let inner = innermost(&field.kind);
                let is_plain = PLAIN.iter().any(|(plain, _)| *plain == inner);
                match members.get(&field.name) {
                    None if !field.may_be_absent() => drop(complaints.insert(format!("no {} in {name}", field.name))),
                    Some(Value::Object(by_name)) if field.kind.starts_with("BTreeMap") && !is_plain => {
                        by_name.values().for_each(|value| compare(inner, value, complaints));
                    }
                    Some(value) if !is_plain => compare(inner, value, complaints),
                    None | Some(_) => {}
                }
            }
        }
        _ => {}
    }
}

#[test]
fn a_run_writes_these_fields_and_no_others() {
    let cluster = Cluster::start(1);
    let dir = tempfile::tempdir().unwrap();
    let mut command = kvorum();
    command.args(["bench", "soak", "--rate", "200", "--duration", "3s", "--warmup", "0s", "--keys", "100", "--url"]);
    command.arg(cluster.node(0).url()).arg("--out").arg(dir.path());
    let output = command.output().unwrap();
    let text = std::fs::read_to_string(dir.path().join("run.json"));
    let text = text.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let mut complaints = BTreeSet::new();
    compare("Document", &serde_json::from_str(&text).unwrap(), &mut complaints);
    assert!(complaints.is_empty(), "{complaints:#?}");
}
