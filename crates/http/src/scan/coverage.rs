//! Which nodes answered for which partitions, as JSON.

use kvorum_core::key::PartitionId;
use kvorum_core::layout::Layout;
use kvorum_core::node::NodeId;
use kvorum_core::partitions::PartitionSet;
use kvorum_replication::cluster_scan::ScanSegment;
use serde_json::{Map, Value, json};

use crate::api::ScanSource;
use crate::error::NodeNames;

/// A node as the client may see it.
pub(super) fn node_name(layout: &Layout, node: NodeId, names: NodeNames) -> String {
    match layout.node(node) {
        Some(known) if names == NodeNames::Urls => known.url.clone(),
        _ => node.to_string(),
    }
}

/// Numbers of partitions as ranges: `["0-17", "40"]`.
pub(super) fn ranges(partitions: &PartitionSet) -> Value {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in partitions.iter().map(PartitionId::index) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    ranges.into_iter().map(text).collect::<Vec<_>>().into()
}

/// Each segment with its layout, and what each node answered for in it.
pub(super) fn coverage(source: &dyn ScanSource, names: NodeNames) -> Value {
    let (layout, segments) = (source.layout(), source.segments());
    let segment = |(place, segment): (usize, &ScanSegment)| {
        let parts = layout.ids().map(|node| (node, segment.plan.part(node))).filter(|(_, part)| !part.is_empty());
        let nodes = parts.map(|(node, part)| {
            json!({
                "node": node_name(layout, node, names),
                "provider": ranges(&part.provides),
                "witness": ranges(&part.witnesses),
            })
        });
        let mut members = Map::new();
        match std::str::from_utf8(&segment.start) {
            Ok(text) => members.insert("start".into(), text.into()),
            Err(_) => {
                use base64::Engine;
                let encoded = base64::engine::general_purpose::STANDARD.encode(&segment.start);
                members.insert("start_base64".into(), encoded.into())
            }
        };
        members.insert("layout".into(), layout.epoch().into());
        members.insert("nodes".into(), nodes.collect());
        // With those of which a read found too few replicas: they are known at the end alone.
        let missing = if place + 1 == segments.len() { source.missing() } else { segment.plan.missing() };
        if !missing.is_empty() {
            members.insert("missing".into(), ranges(missing));
        }
        Value::Object(members)
    };
    segments.iter().enumerate().map(segment).collect()
}
