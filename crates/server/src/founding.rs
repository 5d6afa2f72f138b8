//! What a node knows of its cluster when it starts: the list that the cluster is founded with, or what its directory has
//! kept of later layouts.

use kvorum_config::Config;
use kvorum_core::chain::acceptor::Acceptor;
use kvorum_core::layout::{Layout, PlanError, WantedNode};
use kvorum_storage::data_dir::{ClusterId, DataDir};

use crate::start_error::StartError;

/// The list that the cluster is founded with, if it is not yet.
pub(crate) fn founding(config: &Config) -> Result<Layout, PlanError> {
    let nodes = config.members.iter().map(|member| WantedNode {
        weight: u16::try_from(member.weight.get()).unwrap_or(u16::MAX),
        zone: member.zone.as_ref().map(|zone| zone.as_str().to_owned()),
        ..WantedNode::at(member.url.as_str())
    });
    Layout::founding(nodes.collect())
}

/// A list is what its URLs are.
pub(crate) fn list_id(founding: &Layout) -> ClusterId {
    let urls: Vec<&str> = founding.nodes().iter().map(|node| node.url.as_str()).collect();
    ClusterId(xxhash_rust::xxh3::xxh3_64(urls.join("\n").as_bytes()))
}

/// What the directory knows of layouts; for a new one, that there is none yet.
pub(crate) fn acceptor(config: &Config, data_dir: &DataDir, founding: Layout) -> Result<Acceptor<Layout>, StartError> {
    let own = config.own.as_str();
    let Some(known) = data_dir.acceptor()? else {
        let member = founding.node_at(own).expect("the configuration has checked it");
        return Ok(Acceptor::new(member, data_dir.id(), founding));
    };
    let layout = known.chosen();
    let url = layout.node(known.member()).map_or_else(String::new, |node| node.url.clone());
    if url != own {
        return Err(StartError::OtherNode { found: url, own: own.to_owned() });
    }
    if layout.founding_digest() != founding.digest() {
        if layout.epoch() == 0 {
            return Err(StartError::OtherFounding);
        }
        tracing::warn!(
            epoch = layout.epoch(),
            "`cluster`, or a node's weight or zone, is not what the cluster was founded with: the layout counts, which \
             `kvorum cluster status` shows"
        );
    }
    if layout.epoch() > 0 && layout.copies() != config.quorum.replicas() {
        let (copies, from) = (layout.copies(), config.quorum.replicas());
        tracing::warn!(copies, from, "`replication.from` is not the cluster's number of copies, which counts");
    }
    Ok(known)
}
