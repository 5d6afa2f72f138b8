//! Requests that are passed on to a node, with the console's key. Answers go through as they come: nothing of them is
//! kept here. A value is gathered first, a few at a time: a node may refuse it before it is whole, and a page learns why
//! only after all of it was taken.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
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

/// For one of those that are on their way to make room for another.
const ROOM_TIME: Duration = Duration::from_secs(2);
/// For a value to come whole.
const VALUE_TIME: Duration = Duration::from_secs(60);

/// Twice what nodes take by default.
const VALUE_BYTES_MAX: usize = 16 << 20;
/// Of a value that is too long, before the connection is given up.
const TAKEN_BYTES_MAX: usize = 256 << 20;

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
    let (_room, body) = match path.method {
        "PUT" => {
            let full = |_| ConsoleProblem::full("other values are on their way: try again in a moment".to_owned());
            let room = timeout(ROOM_TIME, state.values.acquire()).await.map_err(full)?;
            let late = |_| ConsoleProblem::new(408, "Request Timeout", "the value has not come whole in time");
            (room.ok(), timeout(VALUE_TIME, value(body)).await.map_err(late)??)
        }
        _ => (None, Bytes::new()),
    };
    let passed =
        passed.body(ConsoleBody::whole(body)).map_err(|error| ConsoleProblem::bad_request(error.to_string()))?;
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

/// A value as a page sends it. What is too long is taken, too, within reason.
async fn value(body: Incoming) -> Result<Bytes, ConsoleProblem> {
    let mut body = pin!(body);
    let mut whole = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let frame =
            frame.map_err(|error| ConsoleProblem::bad_request(format!("the value has not come whole: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length <= VALUE_BYTES_MAX {
            whole.extend_from_slice(&data);
        } else if length > TAKEN_BYTES_MAX {
            break;
        }
    }
    if length > VALUE_BYTES_MAX {
        let detail = format!("the console takes values of at most {} MiB", VALUE_BYTES_MAX >> 20);
        return Err(ConsoleProblem::new(413, "Value Too Large", detail));
    }
    Ok(whole.freeze())
}
