//! Who may ask: pages of this console, opened under a name of this machine, with its token. Pure.
//!
//! Any web site can have the browser that shows it send requests to a port of this machine. `Host` is a name that the
//! site's owner chose where DNS was made to point here; `Origin` and `Sec-Fetch-Site` show another site's page; and the
//! token, which a page has from the fragment of its URL, is sent to nobody unasked.

use ctutils::CtEq;
use hyper::Uri;
use hyper::header::{HOST, HeaderMap, HeaderName, ORIGIN};

use crate::problem::ConsoleProblem;

/// The header with the token.
pub(crate) static TOKEN_HEADER: HeaderName = HeaderName::from_static("kvorum-console");
static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether the request names this machine, and comes from none but its own pages.
///
/// # Errors
/// 421 for another name, 403 for another origin.
pub(crate) fn check_names(uri: &Uri, headers: &HeaderMap) -> Result<(), ConsoleProblem> {
    let misdirected = || {
        let detail = "this console answers as localhost and 127.0.0.1 only: open the URL that it printed";
        ConsoleProblem::new(421, "Misdirected Request", detail)
    };
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).ok_or_else(misdirected)?;
    let is_one = hosts.next().is_none() && uri.authority().is_none_or(|authority| authority.as_str() == host);
    if !is_one || !is_this_machine(host) {
        return Err(misdirected());
    }
    let mut origins = headers.get_all(ORIGIN).iter();
    let is_own = |origin: &hyper::header::HeaderValue| {
        origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://")).is_some_and(|origin| origin == host)
    };
    if origins.all(is_own) { Ok(()) } else { Err(foreign()) }
}

fn foreign() -> ConsoleProblem {
    ConsoleProblem::new(
        403,
        "Forbidden",
        "the request comes from a page of another origin: open the URL that the console printed",
    )
}

/// Whether an authority is a name that cannot be made to point elsewhere. The port may be a tunnel's.
fn is_this_machine(host: &str) -> bool {
    let is_port = |text: &str| !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| {
        let port = host.get(..name.len()).filter(|start| start.eq_ignore_ascii_case(name)).and(host.get(name.len()..));
        port.is_some_and(|port| port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
    })
}

/// Whether a request to the API comes from a page of this console, and has its token.
///
/// # Errors
/// 403 for a page of another site, 401 without the token.
pub(crate) fn check_token(headers: &HeaderMap, token: &str) -> Result<(), ConsoleProblem> {
    if headers.get(&SEC_FETCH_SITE).is_some_and(|site| !["same-origin", "none"].iter().any(|own| site == own)) {
        return Err(foreign());
    }
    let mut given = headers.get_all(&TOKEN_HEADER).iter();
    let is_right = match (given.next(), given.next()) {
        (Some(given), None) => bool::from(given.as_bytes().ct_eq(token.as_bytes())),
        _ => false,
    };
    if is_right {
        return Ok(());
    }
    let detail = "the page does not have this console's token, which ends the URL that the console printed behind `#`: \
                  open that URL; a console that was started anew has another one";
    Err(ConsoleProblem::new(401, "Unauthorized", detail))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(lines: &[(&HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn status(outcome: Result<(), ConsoleProblem>) -> u16 {
        outcome.map_or_else(|problem| problem.status, |()| 200)
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let judged = |host: &'static str| status(check_names(&Uri::from_static("/"), &headers(&[(&HOST, host)])));
        for own in ["localhost", "localhost:8079", "LOCALHOST:1", "127.0.0.1:8079", "[::1]:8079"] {
            assert_eq!(judged(own), 200, "{own}");
        }
        for other in [
            "evil.example:8079",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8079",
            "127.0.0.1:",
            "localhost:80a",
            "localhost:123456",
            "",
            "127.0.0.2:1",
            "::1",
            "localhost@evil",
            "10.0.0.1:8079",
            "localhost:80:80",
        ] {
            assert_eq!(judged(other), 421, "{other}");
        }
        let check =
            |lines: &[(&HeaderName, &'static str)]| status(check_names(&Uri::from_static("/"), &headers(lines)));
        assert_eq!(check(&[]), 421);
        assert_eq!(check(&[(&HOST, "localhost"), (&HOST, "localhost")]), 421);
        let absolute = Uri::from_static("http://evil.example/");
        assert_eq!(status(check_names(&absolute, &headers(&[(&HOST, "localhost")]))), 421);
    }

    #[test]
    fn only_pages_of_the_console_itself_are_answered() {
        let judged = |origin| {
            status(check_names(&Uri::from_static("/"), &headers(&[(&HOST, "localhost:8079"), (&ORIGIN, origin)])))
        };
        assert_eq!(judged("http://localhost:8079"), 200);
        for other in [
            "http://localhost:3000",
            "https://localhost:8079",
            "http://127.0.0.1:8079",
            "null",
            "http://evil.example",
            "",
            "http://localhost:8079.evil.example",
        ] {
            assert_eq!(judged(other), 403, "{other}");
        }
    }

    #[test]
    fn the_token_is_needed_and_must_be_the_whole_one() {
        const TOKEN: &str = "0123456789abcdef0123456789abcdef";
        let judged = |lines: &[(&HeaderName, &'static str)]| status(check_token(&headers(lines), TOKEN));
        assert_eq!(judged(&[(&TOKEN_HEADER, TOKEN)]), 200);
        assert_eq!(judged(&[]), 401);
        for wrong in ["", "0", "0123456789abcdef0123456789abcdee", "0123456789abcdef0123456789abcdef0"] {
            assert_eq!(judged(&[(&TOKEN_HEADER, wrong)]), 401, "{wrong}");
        }
        assert_eq!(judged(&[(&TOKEN_HEADER, TOKEN), (&TOKEN_HEADER, TOKEN)]), 401);
        assert_eq!(judged(&[(&TOKEN_HEADER, TOKEN), (&SEC_FETCH_SITE, "same-origin")]), 200);
        for site in ["cross-site", "same-site"] {
            assert_eq!(judged(&[(&TOKEN_HEADER, TOKEN), (&SEC_FETCH_SITE, site)]), 403, "{site}");
        }
    }
}
