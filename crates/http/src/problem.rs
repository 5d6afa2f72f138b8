//! Errors as `application/problem+json` (RFC 9457).

use serde_json::{Map, Value};

use super::error::Problem;

/// The media type.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// The document: `type`, `title`, `status`, `detail`, then the members of this kind alone.
pub(super) fn document(problem: &Problem) -> Vec<u8> {
    let mut members = Map::new();
    members.insert("type".into(), Value::String(kind(problem.title)));
    members.insert("title".into(), problem.title.into());
    members.insert("status".into(), problem.status.as_u16().into());
    members.insert("detail".into(), problem.detail.as_str().into());
    members.extend(problem.members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let mut document = serde_json::to_vec(&members).expect("strings and numbers can be written as JSON");
    document.push(b'\n');
    document
}

/// A stable name of the kind: the title's words.
fn kind(title: &str) -> String {
    format!("urn:kvorum:problem:{}", title.to_ascii_lowercase().replace(' ', "-"))
}
