//! A page of JSON from each of several nodes, which are all asked at once.

use std::thread;
use std::time::Instant;

use kvorum_config::NodeUrl;
use serde_json::Value;

use crate::client::{ClientRequest, ClientResponse, ResponseBounds, send};
use crate::key_file::ClientKey;
use crate::outcome::ExitOutcome;
use crate::printable::printable;
use crate::refusal::is_unknown_path;

/// Of a page.
const PAGE_BYTES_MAX: u64 = 4 << 20;

/// Why a node has given no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeTrouble {
    /// One word: `silent`, `unauthorized`, `old`, `not-kvorum`, `refused` or `foreign`.
    pub(crate) state: &'static str,
    /// What is wrong, and what to do.
    pub(crate) why: String,
}

impl NodeTrouble {
    pub(crate) fn new(state: &'static str, why: impl Into<String>) -> Self {
        Self { state, why: why.into() }
    }
}

/// Asks all of them for a page. Their answers are in the order of the URLs, and there by the deadline.
pub(crate) fn ask_every(
    urls: &[NodeUrl],
    key: Option<&ClientKey>,
    target: &str,
    deadline: Instant,
) -> Vec<Result<Value, NodeTrouble>> {
    thread::scope(|scope| {
        let ask = |url| scope.spawn(move || ask_node(url, key, target, deadline));
        let asking: Vec<_> = urls.iter().map(ask).collect();
        asking.into_iter().map(|node| node.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Says on stderr which nodes gave no page; the exit code of it.
pub(crate) fn tell_troubles(urls: &[NodeUrl], pages: &[Result<Value, NodeTrouble>]) -> ExitOutcome {
    for (url, page) in urls.iter().zip(pages) {
        if let Err(trouble) = page {
            tell_trouble(url.as_str(), trouble);
        }
    }
    if pages.iter().any(Result::is_ok) { ExitOutcome::Done } else { ExitOutcome::Refused }
}

/// Says on stderr why a node gave no page.
pub(crate) fn tell_trouble(name: &str, NodeTrouble { state, why }: &NodeTrouble) {
    eprintln!("kvorum: {} is left out ({state}): {}", printable(name), printable(why));
}

fn ask_node(url: &NodeUrl, key: Option<&ClientKey>, target: &str, deadline: Instant) -> Result<Value, NodeTrouble> {
    let request = ClientRequest { key, ..ClientRequest::of("GET", target) };
    let bounds = ResponseBounds::Whole { deadline, bytes_max: PAGE_BYTES_MAX };
    let broken = |cause: &std::io::Error| {
        let is_other = cause.kind() == std::io::ErrorKind::InvalidData;
        let why = printable(&cause.to_string());
        if is_other { NodeTrouble::new("not-kvorum", why) } else { NodeTrouble::new("silent", why) }
    };
    let mut answer = send(url, bounds, &request).map_err(|error| broken(&error.cause))?;
    let mut body = Vec::new();
    answer.copy_body(&mut body).map_err(|cause| broken(&cause))?;
    if answer.status != 200 {
        return Err(refused(&answer, &body, target));
    }
    let page: Option<Value> = serde_json::from_slice(&body).ok().filter(Value::is_object);
    page.ok_or_else(|| NodeTrouble::new("not-kvorum", "what answers there is no kvorum node"))
}

fn refused(answer: &ClientResponse, body: &[u8], target: &str) -> NodeTrouble {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    let member = |name: &str| problem.get(name).and_then(Value::as_str).map(printable);
    let path = target.split('?').next().unwrap_or(target);
    let Some(title) = member("title") else {
        let why = format!("what answers there is no kvorum node: it says {}", answer.status);
        return NodeTrouble::new("not-kvorum", why);
    };
    if is_unknown_path(&problem) {
        return NodeTrouble::new("old", format!("its version of kvorum has no {path}: upgrade the node"));
    }
    let why = member("detail").map_or_else(|| title.clone(), |detail| format!("{title}: {detail}"));
    match answer.status {
        401 | 403 => {
            let hint = "--key-file names the file of a key that has the right `status`";
            NodeTrouble::new("unauthorized", format!("{why}; {hint}"))
        }
        _ => NodeTrouble::new("refused", why),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use kvorum_config::{NodeUrl, node_url};

    use super::ask_every;

    /// A server of one answer.
    fn serve(answer: &'static str) -> NodeUrl {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = node_url(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        url
    }

    #[test]
    fn each_node_gives_its_page_or_the_word_for_why_not() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let urls = [
            serve("HTTP/1.1 200 OK\r\n\r\n{\"node\":1}"),
            serve("HTTP/1.1 400 x\r\n\r\n{\"title\":\"Bad Request\",\"detail\":\"there is nothing at this path\"}"),
            serve("HTTP/1.1 401 x\r\n\r\n{\"title\":\"Unauthorized\",\"detail\":\"no key\"}"),
            serve("HTTP/1.1 503 x\r\n\r\n{\"title\":\"Overloaded\"}"),
            serve("HTTP/1.1 200 OK\r\n\r\n<html>"),
            serve("HTTP/1.1 404 x\r\n\r\nnothing here"),
            serve("SSH-2.0-x\r\n\r\n"),
            node_url(&format!("http://{free}")).unwrap(),
        ];
        let pages = ask_every(&urls, None, "/v0/stats?a=1", Instant::now() + Duration::from_secs(20));
        let states: Vec<&str> =
            pages.iter().map(|page| page.as_ref().map_or_else(|trouble| trouble.state, |_| "up")).collect();
        let expected = ["up", "old", "unauthorized", "refused", "not-kvorum", "not-kvorum", "not-kvorum", "silent"];
        assert_eq!(states, expected);
        assert!(pages[1].as_ref().unwrap_err().why.contains("has no /v0/stats: upgrade"), "{:?}", pages[1]);
        assert!(pages[2].as_ref().unwrap_err().why.contains("--key-file"), "{:?}", pages[2]);
    }
}
