//! Requests that are passed on to a node, with the console's key. Bodies go through as they come: nothing of them is
//! kept here, and the node's limits hold.

use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, EXPIRES, HeaderName, HeaderValue, LAST_MODIFIED,
    RETRY_AFTER,
};
use hyper::{Request, Response};
use tokio::time::timeout;

use crate::api_route::ProxiedPath;
use crate::body::ConsoleBody;
use crate::node_client::{NoAnswer, NodeClient};
use crate::problem::ConsoleProblem;
use crate::state::ConsoleState;

/// For the head of an answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// What of a node's answer a page gets.
const PASSED: [HeaderName; 9] = [
    CONTENT_TYPE,
    CONTENT_LENGTH,
    ETAG,
    EXPIRES,
    LAST_MODIFIED,
    RETRY_AFTER,
    HeaderName::from_static("kvorum-expires"),
    HeaderName::from_static("kvorum-replicas"),
    HeaderName::from_static("server-timing"),
];

/// Passes a request on.
///
/// # Errors
/// 502 where the node does not answer.
pub(crate) async fn proxy(
    state: &ConsoleState,
    node: usize,
    path: &ProxiedPath,
    request: Request<Incoming>,
) -> Result<Response<ConsoleBody>, ConsoleProblem> {
    let known = state.nodes.get(node).ok_or_else(|| ConsoleProblem::not_found("there is no such node"))?;
    let query = request.uri().query().map_or_else(String::new, |query| format!("?{query}"));
    let (head, body) = request.into_parts();
    let mut passed = Request::builder().method(path.method).uri(format!("{}{query}", path.target));
    passed = passed.header(CONNECTION, "close");
    if path.target == "/v0/entity" {
        passed = passed.header("kvorum-trace", "1");
    }
    if path.target == "/v0/scan" {
        passed = passed.header(ACCEPT, "application/x-ndjson");
    }
    if let Some(kind) = head.headers.get(CONTENT_TYPE).filter(|_| path.method == "PUT") {
        passed = passed.header(CONTENT_TYPE, kind);
    }
    let body = if path.method == "PUT" { ConsoleBody::Passed(body) } else { ConsoleBody::whole(Bytes::new()) };
    let passed = passed.body(body).map_err(|error| ConsoleProblem::bad_request(error.to_string()))?;
    let mut client = NodeClient::new(known.clone(), state.authorization.clone());
    let answer = timeout(DEADLINE, client.send(passed)).await.unwrap_or(Err(NoAnswer::Late)).map_err(|none| {
        client.forget();
        let words = none.words(DEADLINE);
        ConsoleProblem::new(502, "Node Not Reached", format!("{} {words}", known.url))
    })?;
    let (head, incoming) = answer.into_parts();
    let mut response = Response::new(ConsoleBody::Passed(incoming));
    *response.status_mut() = head.status;
    for name in &PASSED {
        for value in head.headers.get_all(name) {
            response.headers_mut().append(name.clone(), HeaderValue::clone(value));
        }
    }
    Ok(response)
}
