//! What the audit is told of a request that was answered.

use std::net::IpAddr;

use hyper::{Method, Uri};

use crate::api::{AuditLog, AuditedKind, AuditedRequest, Entities};
use crate::request::parse;
use crate::routes::{Action, Verb};
use crate::shard::HttpShard;

/// Writes down what was asked for and what came of it.
pub(crate) fn note<E: Entities>(
    audit: &dyn AuditLog,
    shard: &HttpShard<E>,
    method: &Method,
    uri: &Uri,
    status: u16,
    principal: Option<&str>,
    address: IpAddr,
) {
    let action = parse(method, uri.path(), uri.query(), shard.defaults()).ok();
    let kind = match &action {
        Some(Action::Entity { verb: Verb::Put | Verb::Delete, .. }) => AuditedKind::Write,
        Some(
            Action::Entity { verb: Verb::Get, .. }
            | Action::Range { .. }
            | Action::Scan(_)
            | Action::Query { .. }
            | Action::Script(_),
        ) => AuditedKind::Read,
        Some(Action::BeginRepair | Action::EndRepair | Action::Scrub | Action::EndScrub | Action::Backup) => {
            AuditedKind::Order
        }
        Some(Action::Peer) => AuditedKind::Peer,
        _ => AuditedKind::Other,
    };
    let key = match &action {
        Some(Action::Entity { key, .. }) => Some(key.as_bytes()),
        _ => None,
    };
    let (method, path) = (method.as_str(), uri.path());
    audit.note(&AuditedRequest { method, path, status, principal, address, key, kind });
}
