//! The numbers of a request: how many replicas, and how long a value lives.

use kvorum_core::quorum::{Quorum, majority};

use crate::bad_request::BadRequest;

/// What a request without `ack` and `from` gets, and the most it can ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicationDefaults {
    /// Replicas addressed where the request gives none.
    pub from: u8,
    /// Nodes of the cluster.
    pub nodes: u8,
    /// For how many seconds a value lives where the request does not say; none: without end.
    pub ttl_s: Option<u32>,
}

/// For how many seconds a value may live at most: ten years.
pub(crate) const TTL_S_MAX: u32 = 315_360_000;

/// The request's replicas, not yet compared with the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuorumNumbers {
    pub ack: Option<u32>,
    pub from: Option<u32>,
}

impl QuorumNumbers {
    /// These, or where they say nothing at all, the others.
    pub(crate) fn or(self, others: Self) -> Self {
        if self == Self::default() { others } else { self }
    }

    pub(crate) fn within(self, defaults: ReplicationDefaults) -> Result<Quorum, BadRequest> {
        let out_of_range = BadRequest::Acks { nodes: defaults.nodes };
        let from = match self.from {
            None => defaults.from,
            Some(from) => u8::try_from(from).ok().filter(|&from| from <= defaults.nodes).ok_or(out_of_range.clone())?,
        };
        let ack = match self.ack {
            None => majority(from),
            Some(ack) => u8::try_from(ack).map_err(|_| out_of_range.clone())?,
        };
        Quorum::new(ack, from).ok_or(out_of_range)
    }
}

/// Seconds that a value may live.
pub(crate) fn ttl_s(seconds: u32) -> Result<u32, BadRequest> {
    if (1..=TTL_S_MAX).contains(&seconds) { Ok(seconds) } else { Err(BadRequest::Ttl) }
}
