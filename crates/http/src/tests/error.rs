#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use kvorum_auth::table::OverLimit;

use super::*;

fn of_batches() -> [HttpError; 4] {
    let duplicate = HttpError::DuplicateKey { place: 2 };
    [duplicate, HttpError::BatchTooLarge, HttpError::AnswerFull, HttpError::UnsupportedMediaType]
}

/// One of each; the match has the compiler name what is missing.
fn one_of_each() -> Vec<HttpError> {
    let not_enough = Refused::NotEnough { required: 2, acked: 1, receipt: Receipt::default() };
    let refused =
        [Refused::Overloaded, Refused::Behind, Refused::CannotWrite, Refused::Fenced, Refused::NotServing, not_enough];
    let mut all = [&of_scans()[..], &of_bodies()].concat();
    all.extend([
        BadRequest::UnknownPath.into(),
        HttpError::NotFound { deleted: None, receipt: None },
        HttpError::MethodNotAllowed { allow: "GET" },
        AuthRefusal::Missing.into(),
        AuthRefusal::InQuery.into(),
        AuthRefusal::Forbidden { needed: "read", over: "" }.into(),
        AuthRefusal::Blocked { retry_after: Duration::ZERO }.into(),
        AuthRefusal::Over(OverLimit { limit: "in_flight", retry_after: Duration::ZERO }).into(),
        HttpError::Origin(OriginRefusal::Foreign),
        HttpError::Origin(OriginRefusal::Misdirected),
        HttpError::Shed(Shed::Memory),
        HttpError::Unready(String::new()),
        HttpError::Peer(PeerRefusal { status: StatusCode::CONFLICT, title: "Not A Peer", detail: String::new() }),
        HttpError::Defect { request_id: RequestId(1) },
    ]);
    all.extend(refused.map(HttpError::Refused).into_iter().chain(of_batches()));
    for error in &all {
        match error {
            HttpError::BadRequest(_)
            | HttpError::NotFound { .. }
            | HttpError::MethodNotAllowed { .. }
            | HttpError::Auth(
                AuthRefusal::Missing
                | AuthRefusal::Scheme
                | AuthRefusal::Malformed(_)
                | AuthRefusal::Key(_)
                | AuthRefusal::InQuery
                | AuthRefusal::Forbidden { .. }
                | AuthRefusal::Blocked { .. }
                | AuthRefusal::Over(_),
            )
            | HttpError::Origin(OriginRefusal::Foreign | OriginRefusal::Misdirected)
            | HttpError::Timeout
            | HttpError::ValueTooLarge { .. }
            | HttpError::BatchItem { .. }
            | HttpError::DuplicateKey { .. }
            | HttpError::BatchTooLarge
            | HttpError::AnswerFull
            | HttpError::UnsupportedMediaType
            | HttpError::NotAcceptable
            | HttpError::WorkTooLarge
            | HttpError::Unprocessable(_)
            | HttpError::ScriptsOff
            | HttpError::TooFewReplicas { .. }
            | HttpError::ConditionalWrite
            | HttpError::TransferCoding
            | HttpError::Shed(_)
            | HttpError::Unready(_)
            | HttpError::Refused(
                Refused::Overloaded
                | Refused::Behind
                | Refused::CannotWrite
                | Refused::Fenced
                | Refused::NotServing
                | Refused::NotEnough { .. },
            )
            | HttpError::Peer(_)
            | HttpError::Defect { .. } => {}
        }
    }
    all
}

/// Of requests that say too much, or what nobody does.
fn of_bodies() -> [HttpError; 4] {
    let large = HttpError::ValueTooLarge { bytes_max: 1 };
    [HttpError::Timeout, large, HttpError::ConditionalWrite, HttpError::TransferCoding]
}

fn of_scans() -> [HttpError; 5] {
    let partitions = serde_json::json!(["0-3"]);
    [
        HttpError::NotAcceptable,
        HttpError::WorkTooLarge,
        HttpError::Unprocessable("too much".to_owned()),
        HttpError::ScriptsOff,
        HttpError::TooFewReplicas { required: 2, partitions, nodes: Vec::new() },
    ]
}

#[test]
fn the_table_of_errors_is_the_mapping() {
    let told: BTreeSet<_> = ERRORS.iter().map(|kind| (kind.status, kind.title, kind.members.to_vec())).collect();
    let members = |problem: &Problem| problem.members.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let problems: Vec<Problem> = one_of_each().iter().map(HttpError::problem).collect();
    let mapped = problems.iter().map(|problem| (problem.status.as_u16(), problem.title, members(problem)));
    assert_eq!(mapped.collect::<BTreeSet<_>>(), told);
    assert_eq!(told.len(), ERRORS.len(), "no kind is there twice");
    let is_later = |problem: &Problem| [429, 503].contains(&problem.status.as_u16());
    assert!(problems.iter().all(|problem| is_later(problem) == problem.retry_after.is_some()));
}
