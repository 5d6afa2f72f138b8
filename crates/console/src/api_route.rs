//! What of the API is asked for: pure.

use crate::problem::ConsoleProblem;
use crate::settings::ConsoleLevel;

/// What a page asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiRoute<'a> {
    Session,
    Stream,
    Series,
    History,
    /// Of a node, by its place in the session's list.
    Node(usize, &'static ProxiedPath),
    Dev,
    Canary,
    Profile,
    Bench,
    Jobs,
    StopJob(&'a str),
}

/// A request that is passed on to a node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProxiedPath {
    pub(crate) method: &'static str,
    /// Behind `/api/nodes/N/`.
    name: &'static str,
    /// At the node.
    pub(crate) target: &'static str,
    level: ConsoleLevel,
}

const fn proxied(method: &'static str, name: &'static str, target: &'static str, level: ConsoleLevel) -> ProxiedPath {
    ProxiedPath { method, name, target, level }
}

const PROXIED: &[ProxiedPath] = &[
    proxied("GET", "cluster", "/v0/cluster", ConsoleLevel::Read),
    proxied("GET", "layout", "/v0/layout", ConsoleLevel::Read),
    proxied("GET", "slow", "/v0/slow", ConsoleLevel::Read),
    proxied("GET", "hot", "/v0/hot", ConsoleLevel::Read),
    proxied("GET", "repair", "/v0/repair", ConsoleLevel::Read),
    proxied("GET", "stats", "/v0/stats", ConsoleLevel::Read),
    proxied("GET", "entity", "/v0/entity", ConsoleLevel::Read),
    proxied("GET", "scan", "/v0/scan", ConsoleLevel::Read),
    proxied("PUT", "entity", "/v0/entity", ConsoleLevel::Write),
    proxied("DELETE", "entity", "/v0/entity", ConsoleLevel::Write),
    proxied("POST", "repair", "/v0/repair", ConsoleLevel::Write),
    proxied("POST", "scrub", "/v0/scrub", ConsoleLevel::Write),
    proxied("DELETE", "repair", "/v0/repair", ConsoleLevel::Write),
    proxied("DELETE", "scrub", "/v0/scrub", ConsoleLevel::Write),
];

impl ApiRoute<'_> {
    /// What it needs.
    pub(crate) fn level(self) -> ConsoleLevel {
        match self {
            Self::Session | Self::Stream | Self::Series | Self::History => ConsoleLevel::Read,
            Self::Node(_, path) => path.level,
            Self::Dev | Self::Canary | Self::Profile | Self::Bench | Self::Jobs | Self::StopJob(_) => ConsoleLevel::Lab,
        }
    }

    /// Whether the console's level is enough.
    ///
    /// # Errors
    /// 403
    pub(crate) fn check(self, level: ConsoleLevel) -> Result<(), ConsoleProblem> {
        let needed = self.level();
        if level >= needed {
            return Ok(());
        }
        let advice = match needed {
            ConsoleLevel::Lab => "`kvorum dev` has a console that may".to_owned(),
            needed => format!("start it with `kvorum console --level {}`", needed.name()),
        };
        let detail = format!("this console may {} only: {advice}", level.name());
        Err(ConsoleProblem::new(403, "Forbidden", detail))
    }
}

/// The route of a path behind `/api/`, for a console of so many nodes.
///
/// # Errors
/// 404 for another path, 405 for another method.
pub(crate) fn api_route<'a>(method: &str, path: &'a str, nodes: usize) -> Result<ApiRoute<'a>, ConsoleProblem> {
    let parts: Vec<&str> = path.split('/').collect();
    let (allowed, route) = match parts.as_slice() {
        ["session"] => ("GET", ApiRoute::Session),
        ["stream"] => ("GET", ApiRoute::Stream),
        ["series"] => ("GET", ApiRoute::Series),
        ["history"] => ("GET", ApiRoute::History),
        ["nodes", number, name] => return of_node(method, number, name, nodes),
        ["lab", "dev"] => ("POST", ApiRoute::Dev),
        ["lab", "canary"] => ("POST", ApiRoute::Canary),
        ["lab", "profile"] => ("POST", ApiRoute::Profile),
        ["lab", "bench"] => ("POST", ApiRoute::Bench),
        ["lab", "jobs"] => ("GET", ApiRoute::Jobs),
        ["lab", "jobs", id] => ("DELETE", ApiRoute::StopJob(id)),
        _ => return Err(ConsoleProblem::not_found(format!("the console has no /api/{path}"))),
    };
    if method == allowed { Ok(route) } else { Err(wrong_method(path, &[allowed])) }
}

fn of_node<'a>(method: &str, number: &str, name: &str, nodes: usize) -> Result<ApiRoute<'a>, ConsoleProblem> {
    let number = number.parse::<usize>().ok().filter(|number| *number < nodes);
    let number = number
        .ok_or_else(|| ConsoleProblem::not_found(format!("the console has nodes 0 to {}", nodes.saturating_sub(1))))?;
    let named: Vec<&'static ProxiedPath> = PROXIED.iter().filter(|path| path.name == name).collect();
    if named.is_empty() {
        return Err(ConsoleProblem::not_found(format!("the console asks nodes nothing named {name:?}")));
    }
    let path = named.iter().find(|path| path.method == method).copied();
    let methods = || named.iter().map(|path| path.method).collect::<Vec<_>>();
    path.map(|path| ApiRoute::Node(number, path)).ok_or_else(|| wrong_method(name, &methods()))
}

fn wrong_method(path: &str, allowed: &[&str]) -> ConsoleProblem {
    ConsoleProblem::new(405, "Method Not Allowed", format!("{path} takes {}", allowed.join(", ")))
}

/// A parameter of a query, decoded; none where it is absent, and the last where it is there more than once.
pub(crate) fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let mut pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.rfind(|(of, _)| *of == name).map(|(_, value)| decoded(value))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *byte == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.unwrap_or(*byte));
        rest = after.get(if code.is_some() { 2 } else { 0 }..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &str, path: &str) -> u16 {
        api_route(method, path, 3).map_or_else(|problem| problem.status, |_| 200)
    }

    #[test]
    fn each_route_is_found_by_its_path_and_method() {
        for (method, path) in [
            ("GET", "session"),
            ("GET", "stream"),
            ("GET", "series"),
            ("GET", "history"),
            ("GET", "nodes/0/cluster"),
            ("GET", "nodes/2/entity"),
            ("PUT", "nodes/2/entity"),
            ("DELETE", "nodes/2/entity"),
            ("GET", "nodes/1/scan"),
            ("POST", "nodes/1/repair"),
            ("POST", "nodes/1/scrub"),
            ("POST", "lab/dev"),
            ("GET", "lab/jobs"),
            ("DELETE", "lab/jobs/7"),
        ] {
            assert_eq!(status(method, path), 200, "{method} {path}");
        }
        for path in
            ["", "nothing", "nodes", "nodes/3/cluster", "nodes/-1/cluster", "nodes/0/backup", "nodes/0/../x", "lab"]
        {
            assert_eq!(status("GET", path), 404, "{path}");
        }
        for (method, path) in
            [("POST", "session"), ("POST", "nodes/0/entity"), ("GET", "nodes/0/scrub"), ("GET", "lab/dev")]
        {
            assert_eq!(status(method, path), 405, "{method} {path}");
        }
    }

    #[test]
    fn a_console_does_no_more_than_its_level() {
        let may = |method, path, level| api_route(method, path, 3).unwrap().check(level).is_ok();
        use ConsoleLevel::{Lab, Read, Write};
        assert!(may("GET", "nodes/0/entity", Read) && !may("PUT", "nodes/0/entity", Read));
        assert!(!may("DELETE", "nodes/0/entity", Read) && may("DELETE", "nodes/0/entity", Write));
        assert!(!may("POST", "nodes/0/repair", Read) && !may("POST", "nodes/0/scrub", Read));
        for (method, path) in
            [("POST", "lab/dev"), ("POST", "lab/bench"), ("GET", "lab/jobs"), ("DELETE", "lab/jobs/1")]
        {
            assert!(!may(method, path, Write) && may(method, path, Lab), "{path}");
        }
        let refusal = api_route("PUT", "nodes/0/entity", 3).unwrap().check(Read).unwrap_err();
        assert!(refusal.detail.contains("--level write"), "{}", refusal.detail);
    }

    #[test]
    fn parameters_are_decoded() {
        let query = Some("series=a%2Cb,c&seconds=60&bad=%zz%4");
        assert_eq!(parameter(query, "series").unwrap(), "a,b,c");
        assert_eq!(parameter(query, "bad").unwrap(), "%zz%4");
        assert_eq!(parameter(query, "second"), None);
        assert_eq!(parameter(None, "a"), None);
    }
}
