//! `GET /` of a browser: still no path of this node, but said in words that a person understands.

use hyper::header::{ACCEPT, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::body::ResponseBody;

/// No script, no style, nothing to load: names and commands alone.
const PAGE: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">
<title>A node of kvorum</title>
<h1>A node of kvorum</h1>
<p>This is a node of kvorum, a replicated key-value store. It answers programs, and has no pages of its own.</p>
<p>A cluster is looked at in its console. <code>kvorum dev</code> has printed its address. For any other cluster, start
<code>kvorum console --url URL,URL,URL</code> with the addresses of all nodes, and open what it prints.</p>
<p>A value is at <code>/v0/entity?id=KEY</code>; the documents list all paths under HTTP.</p>
</html>
";

/// Whether a browser asks for what its user has typed: an address without a path.
pub(super) fn is_asked(head: &Parts) -> bool {
    head.uri.path() == "/" && head.method == Method::GET && takes_html(&head.headers)
}

fn takes_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let types = accepted.flat_map(|value| value.split(','));
    types
        .map(|kind| kind.split(';').next().unwrap_or_default().trim())
        .any(|kind| kind.eq_ignore_ascii_case("text/html"))
}

/// Puts the page into the place of a refusal, whose status and other headers stay.
pub(super) fn put_into(response: &mut Response<ResponseBody>) {
    if response.status() == StatusCode::BAD_REQUEST {
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
        *response.body_mut() = ResponseBody::whole(PAGE.as_bytes().into());
    }
}
