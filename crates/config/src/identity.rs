//! This node's identity, and whether the settings agree with each other.

use kvorum_core::quorum::{Quorum, majority};

use super::model::{ClusterMember, Config};
use super::sources::SettingProblem;
use super::values::{ByteSize, Count, NodeUrl};

/// Room that a record, its key and a frame's header take beside the value.
pub(super) const OVERHEAD_BYTES: u64 = 8 << 10;

impl Config {
    /// Finds this node in the cluster, and puts the members and the default of `from` together.
    pub(super) fn find_own(&mut self) -> Result<(), SettingProblem> {
        let named = &self.named;
        self.own = match (&named.advertise, named.cluster.as_slice()) {
            (Some(url), []) => url.clone(),
            (None, []) => NodeUrl::of(self.listen.reachable()),
            (Some(url), cluster) if cluster.contains(url) => url.clone(),
            (Some(url), cluster) => {
                return Err(SettingProblem::OwnUrl { node: format!("is {url}"), cluster: show(cluster) });
            }
            (None, cluster) => self.by_listen(cluster)?,
        };
        let alone = [self.own.clone()];
        let urls = if named.cluster.is_empty() { &alone[..] } else { &named.cluster };
        self.members = urls.iter().map(|url| self.member(url)).collect();
        let from = named.from.map_or(self.members.len(), Count::get);
        let from = u8::try_from(from).ok().and_then(|from| Quorum::new(majority(from), from));
        self.quorum = from.expect("the number of nodes and `replication.from` are bounded by NODES_MAX");
        Ok(())
    }

    fn member(&self, url: &NodeUrl) -> ClusterMember {
        let zone = self.named.zones.iter().find(|(of, _)| of == url);
        let weight = self.named.weights.iter().find(|(of, _)| of == url);
        ClusterMember {
            url: url.clone(),
            weight: weight.map_or_else(Count::default, |(_, weight)| *weight),
            zone: zone.map(|(_, zone)| zone.clone()),
        }
    }

    /// The entry at the listen address itself; else the only one with its port that this machine may be.
    fn by_listen(&self, cluster: &[NodeUrl]) -> Result<NodeUrl, SettingProblem> {
        let listen = &self.listen;
        if let Some(url) = cluster.iter().find(|url| url.address() == listen) {
            return Ok(url.clone());
        }
        let mut candidates = cluster.iter().filter(|url| {
            let address = url.address();
            let here = listen.is_wildcard() || (listen.is_loopback() && address.is_loopback());
            address.port() == listen.port() && here
        });
        match (candidates.next(), candidates.next()) {
            (Some(url), None) => Ok(url.clone()),
            (Some(_), Some(_)) => {
                Err(SettingProblem::OwnUrlAmbiguous { listen: listen.clone(), cluster: show(cluster) })
            }
            (None, _) => Err(SettingProblem::OwnUrl { node: format!("listens on {listen}"), cluster: show(cluster) }),
        }
    }

    /// What no single setting shows.
    pub(super) fn disagreements(&self) -> Vec<SettingProblem> {
        let mut problems = Vec::new();
        let value = self.limits.value_bytes_max;
        let room = [
            ("coordinator.request_bytes_max", self.coordinator.request_bytes_max),
            ("commit.queue_bytes_max", self.commit.queue_bytes_max),
        ];
        for (name, size) in room {
            if size.0 < value.0 + OVERHEAD_BYTES {
                let least = ByteSize(value.0 + OVERHEAD_BYTES);
                let text = format!(
                    "{name} = {size} has no room for a value of limits.value_bytes_max = {value}: raise it to {least} or lower the limit"
                );
                problems.push(SettingProblem::Disagree(text));
            }
        }
        if value.0 > self.memory_bytes.0 / 4 {
            let text = format!(
                "limits.value_bytes_max = {value} is more than a quarter of memory_bytes = {}",
                self.memory_bytes
            );
            problems.push(SettingProblem::Disagree(text));
        }
        let scans = self.scan.memory_bytes;
        if scans.0 < self.scan_bytes_min() {
            let least = ByteSize(self.scan_bytes_min());
            let text =
                format!("scan.memory_bytes = {scans} has no room for one query: raise it to {least}, or leave it out");
            problems.push(SettingProblem::Disagree(text));
        }
        let nodes = self.named.cluster.len();
        if let Some(from) = self.named.from.filter(|from| from.get() > nodes.max(1)) {
            let text = format!("replication.from = {from} is more than the {} nodes of the cluster", nodes.max(1));
            problems.push(SettingProblem::Disagree(text));
        }
        problems.extend(self.strangers("layout.zones", self.named.zones.iter().map(|(url, _)| url)));
        problems.extend(self.strangers("layout.weights", self.named.weights.iter().map(|(url, _)| url)));
        problems
    }

    fn strangers<'a>(&self, name: &str, urls: impl Iterator<Item = &'a NodeUrl>) -> Vec<SettingProblem> {
        let stranger = urls.filter(|url| !self.named.cluster.is_empty() && !self.named.cluster.contains(url));
        stranger.map(|url| SettingProblem::Disagree(format!("{name} names {url}, which is not in `cluster`"))).collect()
    }
}

/// The URLs as `cluster` takes them.
pub(super) fn show(cluster: &[NodeUrl]) -> String {
    cluster.iter().map(NodeUrl::as_str).collect::<Vec<_>>().join(",")
}
