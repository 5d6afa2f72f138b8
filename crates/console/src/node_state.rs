//! What a node's answer to `/v0/stats` says about it: pure.

use std::time::Duration;

use serde_json::Value;

use crate::node_client::{NoAnswer, WholeAnswer};
use crate::stats::{NodeStats, member};

/// Which cluster is watched stays the same while none of its nodes answers, for so long.
const REFERENCE_KEPT: Duration = Duration::from_secs(60);
const DETAIL_CHARS_MAX: usize = 300;

/// What a node is to the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchedState {
    Up,
    Silent,
    Unauthorized,
    Foreign,
    Old,
    NotKvorum,
}

impl WatchedState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Silent => "silent",
            Self::Unauthorized => "unauthorized",
            Self::Foreign => "foreign",
            Self::Old => "old",
            Self::NotKvorum => "not-kvorum",
        }
    }
}

/// What came of a question.
#[derive(Clone, Debug)]
pub(crate) enum Polled {
    Stats(Box<NodeStats>),
    /// No figures, and in words why, with what to do.
    Nothing(WatchedState, String),
    /// No figures, but perhaps an older node's: its `/v0/cluster` shows whether.
    Unknown,
}

fn nothing(state: WatchedState, why: impl Into<String>) -> Polled {
    Polled::Nothing(state, why.into())
}

/// What the answer to `/v0/stats` is.
pub(crate) fn judge(outcome: &Result<WholeAnswer, NoAnswer>, has_key: HasKey, deadline: Duration) -> Polled {
    match outcome {
        Ok(answer) if answer.status == 200 => match NodeStats::parse(&answer.body) {
            Some(stats) => Polled::Stats(Box::new(stats)),
            None => not_kvorum(),
        },
        Ok(answer) => refused(answer, has_key),
        Err(NoAnswer::TooLong) => not_kvorum(),
        Err(NoAnswer::Broken(error)) if error.is_parse() => not_kvorum(),
        Err(none) => nothing(WatchedState::Silent, format!("it {}", none.words(deadline))),
    }
}

fn not_kvorum() -> Polled {
    nothing(WatchedState::NotKvorum, "what answers there is not kvorum: check the address")
}

/// What an answer to `/v0/cluster` is, where `/v0/stats` is not known.
pub(crate) fn judge_older(outcome: &Result<WholeAnswer, NoAnswer>, has_key: HasKey) -> Polled {
    match outcome {
        Ok(answer) if answer.status == 200 => {
            let page: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            if member(&page, "cluster").is_string() && member(&page, "configuration").is_string() {
                let version = member(&page, "version").as_str().unwrap_or("unknown");
                let why = format!("version {version} of the node has no /v0/stats: upgrade it to see its figures");
                nothing(WatchedState::Old, why)
            } else {
                not_kvorum()
            }
        }
        Ok(answer) => match refused(answer, has_key) {
            Polled::Unknown => not_kvorum(),
            polled => polled,
        },
        Err(_) => not_kvorum(),
    }
}

/// Whether the console shows nodes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HasKey {
    Yes,
    No,
}

fn refused(answer: &WholeAnswer, has_key: HasKey) -> Polled {
    let problem: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let is_ours = member(&problem, "type").as_str().is_some_and(|kind| kind.starts_with("urn:kvorum:"));
    let detail: String =
        member(&problem, "detail").as_str().unwrap_or_default().chars().take(DETAIL_CHARS_MAX).collect();
    match (is_ours, answer.status) {
        (true, 401 | 403 | 429) => {
            let advice = match has_key {
                HasKey::No => "it wants a key: start the console with `--key-file FILE`, a key with the right `status`",
                HasKey::Yes => "it refuses the console's key, which needs the right `status`",
            };
            nothing(WatchedState::Unauthorized, format!("{advice} ({detail})"))
        }
        (true, 421) => nothing(
            WatchedState::Unauthorized,
            format!(
                "it does not answer to this name: use its own URL, or add the name to `http.allowed_hosts` ({detail})"
            ),
        ),
        (true, 400 | 404) => Polled::Unknown,
        (true, status) => nothing(WatchedState::Silent, format!("it answers {status}: {detail}")),
        // An older node, or anything else.
        (false, _) => Polled::Unknown,
    }
}

/// Which cluster is watched: the first that answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchedCluster {
    id: Option<String>,
    /// When one of its nodes last answered, since the console's start.
    seen: Duration,
}

impl WatchedCluster {
    /// Takes the ids of the nodes that answered, in their order.
    pub(crate) fn note<'a>(&mut self, answered: impl Iterator<Item = &'a str>, now: Duration) {
        let mut first = None;
        for id in answered {
            if self.id.as_deref() == Some(id) {
                self.seen = now;
                return;
            }
            first = first.or(Some(id));
        }
        // A cluster that was made anew has another id.
        let is_gone = self.id.is_none() || now.saturating_sub(self.seen) >= REFERENCE_KEPT;
        if let Some(first) = first.filter(|_| is_gone) {
            self.id = Some(first.to_owned());
            self.seen = now;
        }
    }

    /// What a node of this cluster is.
    pub(crate) fn state_of(&self, id: &str) -> (WatchedState, Option<String>) {
        match &self.id {
            Some(watched) if watched != id => {
                let why = format!(
                    "it belongs to cluster {id}, the others to {watched}: give the console the nodes of one cluster only"
                );
                (WatchedState::Foreign, Some(why))
            }
            _ => (WatchedState::Up, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Result<WholeAnswer, NoAnswer> {
        Ok(WholeAnswer { status, body: body.to_owned().into() })
    }

    fn state(polled: &Polled) -> (Option<WatchedState>, String) {
        match polled {
            Polled::Stats(_) => (Some(WatchedState::Up), String::new()),
            Polled::Nothing(state, why) => (Some(*state), why.clone()),
            Polled::Unknown => (None, String::new()),
        }
    }

    const DEADLINE: Duration = Duration::from_millis(600);

    #[test]
    fn an_answer_is_known_for_what_it_is_and_says_what_to_do() {
        let problem = |status: u16| answer(status, r#"{"type":"urn:kvorum:problem:x","detail":"words"}"#);
        let judged = |outcome, key| state(&judge(&outcome, key, DEADLINE));
        assert_eq!(
            judged(answer(200, r#"{"cluster":"a","uptime_s":1,"metrics":{}}"#), HasKey::No).0,
            Some(WatchedState::Up)
        );
        let (unauthorized, why) = judged(problem(401), HasKey::No);
        assert!(unauthorized == Some(WatchedState::Unauthorized) && why.contains("--key-file"), "{why}");
        let (unauthorized, why) = judged(problem(403), HasKey::Yes);
        assert!(unauthorized == Some(WatchedState::Unauthorized) && why.contains("`status`"), "{why}");
        assert!(judged(problem(421), HasKey::No).1.contains("allowed_hosts"));
        let (silent, why) = judged(problem(503), HasKey::No);
        assert!(silent == Some(WatchedState::Silent) && why == "it answers 503: words", "{why}");
        let (silent, why) = judged(Err(NoAnswer::Late), HasKey::No);
        assert!(silent == Some(WatchedState::Silent) && why.contains("600 ms"), "{why}");
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(judged(Err(NoAnswer::Unreachable(refused)), HasKey::No).1.contains("is it running"));
        for other in [answer(200, "<html>"), answer(200, "{}"), Err(NoAnswer::TooLong)] {
            assert_eq!(judged(other, HasKey::No).0, Some(WatchedState::NotKvorum));
        }
        assert_eq!(judged(problem(400), HasKey::No).0, None, "an older node has no such path");
        assert_eq!(judged(answer(404, "nginx"), HasKey::No).0, None);
    }

    #[test]
    fn an_older_node_is_told_from_what_is_no_node() {
        let judged = |outcome| state(&judge_older(&outcome, HasKey::No));
        let page = answer(200, r#"{"cluster":"a","configuration":"b","version":"0.0.9"}"#);
        let (old, why) = judged(page);
        assert!(old == Some(WatchedState::Old) && why.contains("0.0.9") && why.contains("upgrade"), "{why}");
        for other in [answer(404, "nginx"), answer(200, "{}"), answer(200, "ok"), Err(NoAnswer::Late)] {
            assert_eq!(judged(other).0, Some(WatchedState::NotKvorum));
        }
    }

    #[test]
    fn nodes_of_another_cluster_than_the_first_are_foreign() {
        let mut watched = WatchedCluster::default();
        let at = Duration::from_secs;
        watched.note(["a", "b"].into_iter(), at(1));
        assert_eq!(watched.state_of("a"), (WatchedState::Up, None));
        let (foreign, why) = watched.state_of("b");
        assert!(foreign == WatchedState::Foreign && why.unwrap().contains("one cluster"));
        watched.note(["b"].into_iter(), at(30));
        assert_eq!(watched.state_of("b").0, WatchedState::Foreign, "the first is away for a moment");
        watched.note(["b", "a"].into_iter(), at(59));
        watched.note(["b"].into_iter(), at(100));
        assert_eq!(watched.state_of("b").0, WatchedState::Foreign);
        watched.note(["c"].into_iter(), at(119));
        assert_eq!(watched.state_of("c").0, WatchedState::Up, "the cluster was made anew");
    }
}
