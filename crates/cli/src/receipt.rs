//! What each replica answered: from the headers of a traced answer, or from the problem of a 504.

use serde_json::{Value, json};

use crate::client::ClientResponse;
use crate::output::align;
use crate::printable::printable;

/// The replicas of a traced answer, as the problem of a 504 has them; none if it has no receipt.
pub(crate) fn replicas(answer: &ClientResponse) -> Option<Value> {
    Some(parse(answer.header("kvorum-replicas")?, answer.header("server-timing").unwrap_or_default()))
}

/// Both headers have the replicas in the same order. What is not in the expected form is left out.
fn parse(replicas: &str, timing: &str) -> Value {
    let mut micros = timing.split(", ").map(|entry| {
        let millis = entry.split(";dur=").nth(1)?;
        millis.replace('.', "").parse::<u64>().ok()
    });
    let each = replicas.split(", ").filter_map(|entry| {
        let micros = micros.next().flatten();
        let (node, rest) = entry.split_once('=')?;
        let (outcome, version) =
            rest.split_once('@').map_or((rest, None), |(outcome, version)| (outcome, Some(version)));
        Some(json!({"node": node, "outcome": outcome, "version": version, "micros": micros}))
    });
    Value::Array(each.collect())
}

/// Replicas as a table, a line each, behind `indent`; none where it is no list of replicas.
pub(crate) fn table(replicas: &Value, indent: &str) -> Option<String> {
    let replicas = replicas.as_array().filter(|list| list.iter().any(|replica| replica.get("outcome").is_some()))?;
    let text = |replica: &Value, name: &str| replica.get(name).and_then(Value::as_str).map_or("-".into(), printable);
    let mut rows = vec![["node", "outcome", "version", "time, ms"].map(str::to_owned).to_vec()];
    for replica in replicas {
        let micros = replica.get("micros").and_then(Value::as_u64);
        let time = micros.map_or("-".into(), |micros| format!("{}.{:03}", micros / 1000, micros % 1000));
        rows.push(vec![text(replica, "node"), text(replica, "outcome"), text(replica, "version"), time]);
    }
    Some(align(&rows).lines().map(|line| format!("{indent}{line}\n")).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{parse, table};

    #[test]
    fn a_receipt_is_read_and_shown_with_each_replicas_outcome_version_and_time() {
        let replicas = parse(
            "http://a:1=accepted@0192-8f3a, http://b:1=unreachable",
            "r0;desc=\"http://a:1\";dur=12.045, r1;desc=\"http://b:1\"",
        );
        let expected = json!([
            {"node": "http://a:1", "outcome": "accepted", "version": "0192-8f3a", "micros": 12045},
            {"node": "http://b:1", "outcome": "unreachable", "version": null, "micros": null}]);
        assert_eq!(replicas, expected);
        let shown = "  node        outcome      version    time, ms\n  \
                       http://a:1  accepted     0192-8f3a  12.045\n  \
                       http://b:1  unreachable  -          -\n";
        assert_eq!(table(&replicas, "  ").unwrap(), shown);
        assert_eq!(table(&json!(["http://a:1"]), "  "), None);
    }
}
