//! All nodes of `dev`: what orders do with them, and what is said of those that die.

use std::process::ExitStatus;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::signal::unix::Signal as Signals;
use tokio::time::{Instant, sleep};

use super::control::refusal;
use super::nodes::DevNode;
use super::order::DevOrder;
use super::words::{DevWords, list};

/// For a killed process to be gone.
const KILL_DEADLINE: Duration = Duration::from_secs(2);
const KILL_POLL: Duration = Duration::from_millis(5);

/// A node that has ended, and how.
pub(crate) struct DevDeath {
    pub(crate) number: u16,
    pub(crate) status: ExitStatus,
}

pub(crate) struct DevCluster(pub(crate) Vec<DevNode>);

impl DevCluster {
    /// Carries an order out, and answers it.
    pub(crate) async fn answer(&mut self, line: &str) -> (Value, Option<DevDeath>) {
        match self.carry_out(line).await {
            Ok(death) => (self.status(), death),
            Err(why) => (refusal(&why), None),
        }
    }

    pub(crate) fn status(&self) -> Value {
        json!({"ok": true, "nodes": self.0.iter().map(DevNode::json).collect::<Vec<_>>()})
    }

    /// A death that the order caused is the caller's to tell.
    async fn carry_out(&mut self, line: &str) -> Result<Option<DevDeath>, String> {
        match DevOrder::parse(line)? {
            DevOrder::Status => {}
            DevOrder::Kill(number) => {
                let node = self.node(number)?;
                node.kill()?;
                let begun = Instant::now();
                while begun.elapsed() < KILL_DEADLINE {
                    if let Some(status) = node.reap() {
                        return Ok(Some(DevDeath { number, status }));
                    }
                    sleep(KILL_POLL).await;
                }
                return Err(format!("node {number} was killed and is not gone yet: see `kvorum dev status`"));
            }
            DevOrder::Pause(number) => self.node(number)?.pause()?,
            DevOrder::Resume(number) => self.node(number)?.resume()?,
            DevOrder::Start(number) => self.node(number)?.restart()?,
            DevOrder::Slow(number, ms) => self.node(number)?.slow(ms)?,
            DevOrder::Skew(number, seconds) => self.node(number)?.skew(seconds)?,
        }
        Ok(None)
    }

    fn node(&mut self, number: u16) -> Result<&mut DevNode, String> {
        let count = self.0.len();
        let node = self.0.iter_mut().find(|node| node.number == number);
        node.ok_or_else(|| format!("there is no node {number}: they are numbered from 1 to {count}"))
    }

    /// Those that have ended and were not known to have.
    pub(crate) fn reap(&mut self) -> Vec<DevDeath> {
        let ended = |node: &mut DevNode| node.reap().map(|status| DevDeath { number: node.number, status });
        self.0.iter_mut().filter_map(ended).collect()
    }

    /// What is said of a death that the others survive.
    pub(crate) fn obituary(&self, death: &DevDeath, words: &DevWords) -> String {
        let DevDeath { number, status } = death;
        let url = self.0.iter().find(|node| node.number == *number).map(DevNode::url);
        let name = format!("node {number} ({})", url.map_or("?", |url| url.as_str()));
        let end = match status.code() {
            Some(2) => "did not start, its log says why".to_owned(),
            _ => format!("ended ({status})"),
        };
        let running: Vec<u16> = self.0.iter().filter(|node| node.is_running()).map(|node| node.number).collect();
        let others = match running.as_slice() {
            [] => "no node runs".to_owned(),
            [one] => format!("node {one} runs on"),
            _ => format!("nodes {} run on", list(&running)),
        };
        format!("kvorum: {name} {end}; {others}. Start it again: {}", words.command(&format!("dev start {number}")))
    }

    /// Has all drain, also those that are paused.
    pub(crate) fn stop(&mut self) {
        self.0.iter_mut().for_each(DevNode::stop);
    }

    /// Cancel safe.
    pub(crate) async fn all_dead(&mut self, deaths: &mut Signals) {
        loop {
            self.reap();
            if self.0.iter().all(DevNode::is_dead) {
                return;
            }
            deaths.recv().await;
        }
    }
}
