//! `kvorum top`: the cluster in a terminal, once a second.
//!
//! Owns what is asked of whom and when. `sample` makes a second's figures of two pages of a node, `verdict` says what they
//! mean, `screen` shows them.

mod sample;
mod screen;
mod verdict;

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use kvorum_config::{NodeUrl, node_url};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::every_node::{NodeTrouble, ask_every, tell_trouble};
use crate::key_file::ClientKey;
use crate::outcome::ExitOutcome;
use crate::output::{OutputForm, json_line};
use crate::view_args::TopArgs;
use sample::{ClusterFrame, NodePage, cluster_frame};
use screen::{Screen, text};
use verdict::verdict;

const INTERVAL: Duration = Duration::from_secs(1);
/// A node that has not answered by then is shown as silent.
const ANSWER_MAX: Duration = Duration::from_millis(900);
/// Nodes that are asked, whatever a node says of its cluster.
const NODES_MAX: usize = 64;

/// `kvorum top`
pub(crate) fn top(args: &TopArgs) -> Result<ExitOutcome> {
    let stop = stop_signal()?;
    let mut watch = Watch::new(args);
    let first = watch.frame();
    let is_live = args.form.output == OutputForm::Text && !args.once && io::stdout().is_terminal();
    if args.once && first.nodes.iter().all(|node| node.stats.is_none()) {
        first.nodes.iter().for_each(|node| node.trouble.iter().for_each(|trouble| tell_trouble(&node.name, trouble)));
        return Ok(ExitOutcome::Refused);
    }
    let mut screen = is_live.then(Screen::enter).transpose()?;
    if let Some(screen) = &mut screen {
        screen.show(&first)?;
    }
    let mut next = Instant::now() + INTERVAL;
    loop {
        match stop.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(ExitOutcome::Done),
        }
        next = Instant::now() + INTERVAL;
        let frame = watch.frame();
        match (&mut screen, args.form.output) {
            (Some(screen), _) => screen.show(&frame)?,
            (None, OutputForm::Json) => writeln!(io::stdout(), "{}", json_line(&frame.json()))?,
            (None, OutputForm::Text) => writeln!(io::stdout(), "{}", text(&frame, None).join("\n"))?,
        }
        if args.once {
            return Ok(ExitOutcome::Done);
        }
    }
}

/// Is sent something at the first Ctrl-C, SIGTERM or SIGHUP, so that the terminal can be given back as it was.
fn stop_signal() -> Result<Receiver<()>> {
    let (asked, stop) = sync_channel(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        // It ends by itself if nobody waits any more.
        let _ = asked.send(());
    });
    Ok(stop)
}

/// A node that is asked.
struct TopTarget {
    /// As its cluster calls it.
    name: String,
    /// Where it is asked.
    url: NodeUrl,
    /// What it said last, while it answers.
    before: Option<Value>,
}

impl TopTarget {
    fn new(name: &str, url: NodeUrl) -> Self {
        Self { name: name.to_owned(), url, before: None }
    }
}

/// The nodes, and what they said last.
struct Watch<'a> {
    given: &'a [NodeUrl],
    key: Option<&'a ClientKey>,
    nodes: Vec<TopTarget>,
    /// Of the first node that answered, once one has.
    cluster: Option<String>,
    /// How many nodes hold a key.
    from: Option<u64>,
}

impl<'a> Watch<'a> {
    fn new(args: &'a TopArgs) -> Self {
        let given = args.server.urls();
        let nodes = given.iter().map(|url| TopTarget::new(url.as_str(), url.clone())).collect();
        Self { given, key: args.server.key(), nodes, cluster: None, from: None }
    }

    fn urls(&self) -> Vec<NodeUrl> {
        self.nodes.iter().map(|node| node.url.clone()).collect()
    }

    fn ask(&self, urls: &[NodeUrl], target: &str) -> Vec<Result<Value, NodeTrouble>> {
        ask_every(urls, self.key, target, Instant::now() + ANSWER_MAX)
    }

    /// Asks all nodes, and makes a second's figures of what they said before and say now.
    fn frame(&mut self) -> ClusterFrame {
        let mut pages = self.ask(&self.urls(), "/v0/stats");
        if self.cluster.is_none() && self.discover(&pages) {
            pages = self.ask(&self.urls(), "/v0/stats");
        }
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for (node, page) in self.nodes.iter_mut().zip(pages) {
            let page = page.and_then(|page| match (text_of(&page, "cluster"), &self.cluster) {
                (Some(cluster), Some(own)) if cluster != *own => {
                    Err(NodeTrouble::new("foreign", format!("it is of another cluster, {cluster}")))
                }
                _ => Ok(page),
            });
            let before = std::mem::replace(&mut node.before, page.as_ref().ok().cloned());
            nodes.push(NodePage { name: node.name.clone(), before, page });
        }
        let frame = cluster_frame(nodes);
        ClusterFrame { verdict: verdict(&frame.nodes, self.from), ..frame }
    }

    /// Finds the other nodes through the first that answers. False while none does.
    fn discover(&mut self, pages: &[Result<Value, NodeTrouble>]) -> bool {
        let mut answered = self.given.iter().zip(pages).filter_map(|(url, page)| Some((url, page.as_ref().ok()?)));
        let Some((first, page)) = answered.next() else { return false };
        self.cluster = text_of(page, "cluster");
        let one = std::slice::from_ref(first);
        let ask = |target| self.ask(one, target).into_iter().next().and_then(Result::ok).unwrap_or_default();
        let (cluster, layout) = (ask("/v0/cluster"), ask("/v0/layout?id=0"));
        self.from = layout.get("from").and_then(Value::as_u64);
        let names = cluster.get("nodes").and_then(Value::as_array).into_iter().flatten();
        let names: Vec<String> = names.filter_map(|node| text_of(node, "url")).take(NODES_MAX).collect();
        if names.is_empty() {
            return false;
        }
        // Who is called by another name, such as `localhost`, is asked where the user can reach it.
        let name_of = |page: &Result<Value, NodeTrouble>| text_of(page.as_ref().ok()?, "node");
        let reached = |name: &String| {
            let mut given = self.given.iter().zip(pages);
            let found = given.find(|(_, page)| name_of(page).as_ref() == Some(name)).map(|(url, _)| url.clone());
            found.or_else(|| node_url(name).ok())
        };
        let of_cluster = names.iter().filter_map(|name| Some(TopTarget::new(name, reached(name)?)));
        let mut nodes: Vec<TopTarget> = of_cluster.collect();
        // Those that answered, and are none of these, are shown with what is wrong.
        for (url, page) in self.given.iter().zip(pages) {
            let is_silent = page.as_ref().is_err_and(|trouble| trouble.state == "silent");
            if !is_silent && nodes.iter().all(|node| node.url != *url) {
                nodes.push(TopTarget::new(url.as_str(), url.clone()));
            }
        }
        self.nodes = nodes;
        true
    }
}

fn text_of(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned)
}
