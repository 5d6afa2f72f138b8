//! `/v0/whoami`: what the key of the request may do.

use kvorum_auth::role::{Grant, Role};
use kvorum_auth::table::KnownKey;
use serde_json::{Value, json};

use crate::gate::Authenticated;

/// The page, as JSON. Without a file of keys there is no principal, and everything is allowed.
pub(crate) fn page(authenticated: Option<&Authenticated>) -> Vec<u8> {
    let page = match authenticated {
        None => json!({ "principal": null, "role": null, "open": true }),
        Some(Authenticated { key, known, .. }) => {
            let KnownKey { principal, not_after_ms, .. } = &**known;
            let Role { name, grants, admin, limits, .. } = &*principal.role;
            json!({
                "principal": principal.name,
                "role": name,
                "open": false,
                "key": key.id().to_string(),
                "not_after": not_after_ms.and_then(time),
                "grants": grants.iter().map(grant).collect::<Vec<Value>>(),
                "admin": admin.iter().map(|right| right.name()).collect::<Vec<_>>(),
                "limits": {
                    "requests_per_second": limits.requests.map(|rate| rate.get()),
                    "bytes_per_second": limits.bytes.map(|rate| rate.get()),
                    "in_flight": limits.in_flight,
                },
            })
        }
    };
    serde_json::to_vec_pretty(&page).expect("plain values are JSON")
}

fn grant(grant: &Grant) -> Value {
    let allow: Vec<&str> = grant.allow.iter().map(|right| right.name()).collect();
    json!({ "prefix": grant.prefix.to_string(), "allow": allow })
}

/// RFC 3339, in UTC.
fn time(unix_ms: u64) -> Option<String> {
    kvorum_auth::audit::timestamp(unix_ms)
}
