//! What a query means, told plainly: over all records at once, as trees of `serde_json`, from the query's own JSON.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub(crate) struct PlainRecord {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) content_type: Option<Vec<u8>>,
    pub(crate) written_ms: u64,
}

pub(crate) struct PlainAnswer {
    pub(crate) groups: Value,
    pub(crate) not_json: u64,
}

/// A record's value at a path, if it is JSON that has it.
fn at<'v>(value: Option<&'v Value>, part: &Value) -> Option<&'v Value> {
    value?.pointer(part["path"].as_str().unwrap())
}

/// Numbers by what they say. Floats of the tests are integers below 2^53, fractions, or far beyond 64 bits.
fn numbers(one: &Value, other: &Value) -> Ordering {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => one.cmp(&other),
        (None, Some(_)) => numbers(other, one).reverse(),
        (None, None) => one.as_f64().unwrap().partial_cmp(&other.as_f64().unwrap()).unwrap(),
        (Some(integer), None) => {
            let float = other.as_f64().unwrap();
            let halves =
                if float.abs() > 1e25 { i128::MAX / 2 * float.signum() as i128 } else { (float * 2.0) as i128 };
            (integer * 2).cmp(&halves)
        }
    }
}

trait AsI128 {
    fn as_i128(&self) -> Option<i128>;
}

impl AsI128 for Value {
    fn as_i128(&self) -> Option<i128> {
        self.as_i64().map(i128::from).or(self.as_u64().map(i128::from))
    }
}

/// The same text for what is equal.
fn name(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if value.as_i128().is_none() && float.fract() == 0.0 && float.abs() < 1e15 => {
                json!(float as i64)
            }
            _ => value.clone(),
        },
        Value::Array(elements) => elements.iter().map(name).collect(),
        Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), name(value))).collect(),
        other => other.clone(),
    }
}

fn order(one: &Value, other: &Value) -> Ordering {
    let kind = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(false) => 1,
        Value::Bool(true) => 2,
        Value::Number(_) => 3,
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    };
    kind(one).cmp(&kind(other)).then_with(|| match (one, other) {
        (Value::Number(_), _) => numbers(one, other),
        (Value::String(one), Value::String(other)) => one.as_bytes().cmp(other.as_bytes()),
        (Value::Array(one), Value::Array(other)) => {
            let differ = one.iter().zip(other).map(|(one, other)| order(one, other)).find(|order| order.is_ne());
            differ.unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            let list = |members: &serde_json::Map<String, Value>| -> Vec<Value> {
                members.iter().map(|(name, value)| json!([name, value])).collect()
            };
            order(&list(one).into(), &list(other).into())
        }
        _ => Ordering::Equal,
    })
}

fn holds_for_order(op: &str, order: Ordering) -> bool {
    match op {
        "eq" => order.is_eq(),
        "ne" => order.is_ne(),
        "lt" => order.is_lt(),
        "le" => order.is_le(),
        "gt" => order.is_gt(),
        "ge" => order.is_ge(),
        _ => panic!("{op}"),
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    (0..=bytes.len()).any(|from| bytes[from..].starts_with(part))
}

fn holds_for_record(record: &PlainRecord, now_ms: u64, condition: &Value) -> bool {
    let (op, wanted) = (condition["op"].as_str().unwrap(), &condition["value"]);
    let bytes = match condition["on"].as_str().unwrap() {
        "size" => return holds_for_order(op, numbers(&json!(record.value.len()), wanted)),
        "age" => {
            let age = if now_ms < record.written_ms { 0 } else { (now_ms - record.written_ms) / 1000 };
            return holds_for_order(op, numbers(&json!(age), wanted));
        }
        "key" => &record.key,
        _ => match &record.content_type {
            None => return false,
            Some(content_type) => content_type,
        },
    };
    let text = wanted.as_str().unwrap_or_default().as_bytes();
    match op {
        "prefix" => bytes.starts_with(text),
        "suffix" => bytes.ends_with(text),
        "contains" => contains(bytes, text),
        "eq" => bytes == text,
        "ne" => bytes != text,
        _ => wanted.as_array().unwrap().iter().any(|text| text.as_str().unwrap().as_bytes() == bytes),
    }
}

fn holds_for_value(value: Option<&Value>, condition: &Value) -> bool {
    let (op, wanted) = (condition["op"].as_str().unwrap(), &condition["value"]);
    let Some(found) = at(value, condition) else { return op == "exists" && *wanted == json!(false) };
    let is_ordered = |value: &Value| value.is_number() || value.is_string();
    match op {
        "exists" => *wanted != json!(false),
        "in" => wanted.as_array().unwrap().iter().any(|wanted| order(found, wanted).is_eq()),
        "eq" | "ne" => holds_for_order(op, order(found, wanted)),
        _ => {
            let same = is_ordered(found) && found.is_number() == wanted.is_number();
            same && holds_for_order(op, order(found, wanted))
        }
    }
}

fn base64_if_needed(name: &str, bytes: &[u8]) -> (String, Value) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (name.into(), text.into()),
        Err(_) => (format!("{name}_base64"), STANDARD.encode(bytes).into()),
    }
}

/// A record with its value, where that is JSON.
type Read<'r> = (&'r PlainRecord, Option<Value>);

/// What orders a record's group, and its member of the answer.
fn group_of(read: &Read<'_>, grouping: Option<&Value>) -> (Option<Vec<u8>>, Value, (String, Value)) {
    let null = || ("group".to_owned(), Value::Null);
    match grouping {
        None => (None, Value::Null, null()),
        Some(grouping) if grouping.get("path").is_some() => {
            let value = at(read.1.as_ref(), grouping).map_or(Value::Null, name);
            (None, value.clone(), ("group".to_owned(), value))
        }
        Some(grouping) => {
            let separator = grouping.get("separator").map_or("/", |text| text.as_str().unwrap()).as_bytes();
            // As latin-1, in which each byte is a letter.
            let letters = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
            let (key, separator) = (letters(&read.0.key), letters(separator));
            let segment = key.split(&separator).nth(grouping["key_segment"].as_u64().unwrap() as usize);
            let segment = segment.map(|text| text.chars().map(|letter| letter as u8).collect::<Vec<u8>>());
            let member = segment.as_ref().map_or_else(null, |segment| base64_if_needed("group", segment));
            (segment, Value::Null, member)
        }
    }
}

fn sum(numbers: &[&Value]) -> Value {
    let integers: i128 = numbers.iter().filter_map(|number| AsI128::as_i128(*number)).sum();
    let floats: Vec<f64> = numbers
        .iter()
        .filter(|number| AsI128::as_i128(**number).is_none())
        .map(|number| number.as_f64().unwrap())
        .collect();
    if floats.is_empty() {
        u64::try_from(integers)
            .map(Value::from)
            .or(i64::try_from(integers).map(Value::from))
            .unwrap_or(json!(integers as f64))
    } else {
        json!(integers as f64 + floats.iter().sum::<f64>())
    }
}

fn aggregate(called: &str, what: &Value, records: &[&Read<'_>]) -> Value {
    if called == "count" {
        return json!(records.len());
    }
    let found: Vec<(&[u8], &Value)> =
        records.iter().filter_map(|(record, value)| Some((record.key.as_slice(), at(value.as_ref(), what)?))).collect();
    let numbers_of: Vec<&Value> = found.iter().map(|(_, value)| *value).filter(|value| value.is_number()).collect();
    let mut scalars = found.clone();
    scalars.retain(|(_, value)| value.is_number() || value.is_string());
    let extreme = |better: Ordering| {
        let mut best: Option<&Value> = None;
        for (_, value) in &scalars {
            if best.is_none_or(|best| order(value, best) == better) {
                best = Some(value);
            }
        }
        best.cloned().unwrap_or_default()
    };
    match called {
        "sum" => sum(&numbers_of),
        "avg" if numbers_of.is_empty() => Value::Null,
        "avg" => json!(sum(&numbers_of).as_f64().map(|sum| sum / numbers_of.len() as f64)),
        "min" => extreme(Ordering::Less),
        "max" => extreme(Ordering::Greater),
        "histogram" => {
            let bounds = what["bounds"].as_array().unwrap();
            let count = |at: usize| {
                let above = |number: &Value| at == 0 || numbers(number, &bounds[at - 1]).is_ge();
                let below = |number: &Value| at == bounds.len() || numbers(number, &bounds[at]).is_lt();
                numbers_of.iter().filter(|number| above(number) && below(number)).count()
            };
            json!({ "bounds": bounds, "counts": (0..=bounds.len()).map(count).collect::<Vec<_>>() })
        }
        "top" => {
            scalars.sort_by(|one, other| order(other.1, one.1).then_with(|| one.0.cmp(other.0)));
            scalars.truncate(what["n"].as_u64().unwrap() as usize);
            let entry = |(key, value): &(&[u8], &Value)| {
                let mut entry = json!({ "value": value });
                let (name, key) = base64_if_needed("key", key);
                entry[name] = key;
                entry
            };
            scalars.iter().map(entry).collect()
        }
        _ => json!(found.iter().map(|(_, value)| name(value).to_string()).collect::<BTreeSet<_>>().len()),
    }
}

/// What the query answers over these records, which are in the order of their keys.
pub(crate) fn answer(query: &Value, records: &[PlainRecord], now_ms: u64) -> PlainAnswer {
    let conditions = query.get("where").map(|list| list.as_array().unwrap().as_slice()).unwrap_or_default();
    let needs_json = query.to_string().contains("\"path\"");
    let fulfils = |record: &&PlainRecord| {
        let mut on = conditions.iter().filter(|condition| condition.get("on").is_some());
        on.all(|condition| holds_for_record(record, now_ms, condition))
    };
    let read: Vec<Read<'_>> =
        records.iter().filter(fulfils).map(|record| (record, serde_json::from_slice(&record.value).ok())).collect();
    let not_json = read.iter().filter(|(_, value)| needs_json && value.is_none()).count() as u64;
    let mut matched: Vec<&Read<'_>> = read.iter().collect();
    matched.retain(|(_, value)| {
        let mut on_paths = conditions.iter().filter(|condition| condition.get("path").is_some());
        on_paths.all(|condition| holds_for_value(value.as_ref(), condition))
    });
    let grouping = query.get("group_by");
    let mut names: Vec<_> = matched.iter().map(|read| group_of(read, grouping)).collect();
    if grouping.is_none() {
        names.push((None, Value::Null, ("group".to_owned(), Value::Null)));
    }
    names.sort_by(|one, other| one.0.cmp(&other.0).then_with(|| order(&one.1, &other.1)));
    names.dedup_by(|one, other| one.2 == other.2);
    let groups = names.iter().map(|name| {
        let mut of_group = matched.clone();
        of_group.retain(|read| group_of(read, grouping).2 == name.2);
        let aggregates = query["select"].as_object().unwrap();
        let mut group: serde_json::Map<String, Value> =
            aggregates.iter().map(|(called, what)| (called.clone(), aggregate(called, what, &of_group))).collect();
        group.insert(name.2.0.clone(), name.2.1.clone());
        Value::Object(group)
    });
    PlainAnswer { groups: groups.collect(), not_json }
}
