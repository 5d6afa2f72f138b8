//! From a request to its answer: who may ask, what for, and the headers that all answers have.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response};
use serde_json::Value;
use tokio::time::timeout;

use crate::admission::{check_names, check_token};
use crate::api_route::{ApiRoute, api_route};
use crate::assets::{asset, content_type, read_file};
use crate::body::ConsoleBody;
use crate::lab;
use crate::node_client::gather;
use crate::pages;
use crate::problem::ConsoleProblem;
use crate::proxy::proxy;
use crate::series;
use crate::state::ConsoleState;
use crate::stream::stream;

/// Nothing but the console's own files, and no page may show it in a frame.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                           frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// A report has its scripts in it. It runs them in an origin of its own, which reaches nothing.
const REPORT_POLICY: &str = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                             img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
/// Of an order to the lab.
const BODY_BYTES_MAX: usize = 16 << 10;
const BODY_TIME: Duration = Duration::from_secs(10);

/// The answer to a request.
pub(crate) async fn answer(state: &Arc<ConsoleState>, request: Request<Incoming>) -> Response<ConsoleBody> {
    let mut response = respond(state, request).await.unwrap_or_else(|problem| refusal(&problem));
    let headers = response.headers_mut();
    let text = HeaderValue::from_static;
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(text(PAGE_POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, text("nosniff"));
    headers.insert(REFERRER_POLICY, text("no-referrer"));
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), text("same-origin"));
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), text("same-origin"));
    headers.entry(CACHE_CONTROL).or_insert(text("no-store"));
    response
}

/// A problem as an answer.
pub(crate) fn refusal(problem: &ConsoleProblem) -> Response<ConsoleBody> {
    let answer = Response::builder().status(problem.status).header(CONTENT_TYPE, "application/problem+json");
    answer.body(ConsoleBody::whole(problem.document())).expect("a status of our own")
}

fn json(text: String) -> Response<ConsoleBody> {
    let answer = Response::builder().header(CONTENT_TYPE, "application/json");
    answer.body(ConsoleBody::whole(text)).expect("plain headers")
}

async fn respond(
    state: &Arc<ConsoleState>,
    request: Request<Incoming>,
) -> Result<Response<ConsoleBody>, ConsoleProblem> {
    check_names(request.uri(), request.headers())?;
    let path = request.uri().path().to_owned();
    if let Some(path) = path.strip_prefix("/api/") {
        check_token(request.headers(), &state.token)?;
        let route = api_route(request.method().as_str(), path, state.nodes.len())?;
        route.check(state.settings.level)?;
        return api(state, route, request).await;
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return Err(ConsoleProblem::new(405, "Method Not Allowed", "pages are read with GET"));
    }
    match path.strip_prefix("/open/") {
        Some(opened) => report(state, opened.to_owned()).await,
        None => asset(&path, request.headers(), state.settings.assets.as_deref()),
    }
}

async fn api(
    state: &Arc<ConsoleState>,
    route: ApiRoute<'_>,
    request: Request<Incoming>,
) -> Result<Response<ConsoleBody>, ConsoleProblem> {
    match route {
        ApiRoute::Session => Ok(json(pages::session(state))),
        ApiRoute::Stream => stream(state),
        ApiRoute::Series => Ok(json(series::table().to_string())),
        ApiRoute::History => Ok(json(pages::history(state, request.uri().query())?)),
        ApiRoute::Node(node, path) => proxy(state, node, path, request).await,
        ApiRoute::Dev => Ok(json(lab::dev(state, &order(request).await?).await?)),
        ApiRoute::Canary => Ok(json(lab::canary(state, &order(request).await?)?)),
        ApiRoute::Profile => Ok(json(start_job(state, request, lab::profile).await?)),
        ApiRoute::Bench => Ok(json(start_job(state, request, lab::bench).await?)),
        ApiRoute::Jobs => Ok(json(lab::jobs(state)?.show().to_string())),
        ApiRoute::StopJob(id) => {
            lab::jobs(state)?.stop(id)?;
            Ok(json("{}".to_owned()))
        }
    }
}

/// The body of an order: a small object of JSON.
async fn order(request: Request<Incoming>) -> Result<Value, ConsoleProblem> {
    let bad =
        || ConsoleProblem::bad_request(format!("the body is an object of JSON of at most {BODY_BYTES_MAX} bytes"));
    let body = timeout(BODY_TIME, gather(request.into_body(), BODY_BYTES_MAX)).await;
    let body = body.map_err(|_| bad())?.map_err(|_| bad())?;
    serde_json::from_slice(&body).ok().filter(Value::is_object).ok_or_else(bad)
}

/// Does what waits for the disk elsewhere: the console has one thread.
async fn off_thread<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, ConsoleProblem> + Send + 'static,
) -> Result<T, ConsoleProblem> {
    let done = tokio::task::spawn_blocking(act).await;
    done.map_err(|error| ConsoleProblem::new(500, "Internal Server Error", error.to_string()))?
}

async fn start_job(
    state: &Arc<ConsoleState>,
    request: Request<Incoming>,
    start: fn(&ConsoleState, &Value) -> Result<String, ConsoleProblem>,
) -> Result<String, ConsoleProblem> {
    let (state, body) = (state.clone(), order(request).await?);
    off_thread(move || start(&state, &body)).await
}

/// What a job of the lab has written, for who has its ticket.
async fn report(state: &ConsoleState, path: String) -> Result<Response<ConsoleBody>, ConsoleProblem> {
    let over =
        || ConsoleProblem::not_found("there is no such report, or its address is over: open it from the lab again");
    let (ticket, file) = path.split_once('/').ok_or_else(over)?;
    let (dir, shown) = state.jobs.as_ref().and_then(|jobs| jobs.opened(ticket)).ok_or_else(over)?;
    let file = if file.is_empty() { shown } else { file }.to_owned();
    let answer =
        Response::builder().header(CONTENT_TYPE, content_type(&file)).header(CONTENT_SECURITY_POLICY, REPORT_POLICY);
    let bytes = off_thread(move || read_file(&dir, &file)).await?;
    Ok(answer.body(ConsoleBody::whole(bytes)).expect("plain headers"))
}
