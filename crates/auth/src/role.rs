//! What a role grants, and how much of a node it may use.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::prefix::Prefix;
use crate::rate::LimitRate;
use crate::rights::{AdminRight, DataRight};

/// Rights over the keys of one prefix.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Where.
    pub prefix: Prefix,
    /// What.
    pub allow: Vec<DataRight>,
}

/// Bounds of each principal of a role on each node. `None`: only the node's own bounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoleLimits {
    /// Requests a second.
    pub requests: Option<LimitRate>,
    /// Bytes of values a second, in both directions together.
    pub bytes: Option<LimitRate>,
    /// Requests at one time.
    pub in_flight: Option<u32>,
}

/// What is counted of a role's requests.
#[derive(Debug, Default)]
pub struct RoleCounts {
    /// Let through.
    pub allowed: AtomicU64,
    /// Without the right.
    pub denied: AtomicU64,
    /// Over a limit.
    pub limited: AtomicU64,
}

/// What the keys that name it may do. Grants only allow, and their union counts.
#[derive(Clone, Debug, Default)]
pub struct Role {
    /// As the file names it.
    pub name: String,
    /// Over keys.
    pub grants: Vec<Grant>,
    /// Over the node.
    pub admin: Vec<AdminRight>,
    /// Of each principal.
    pub limits: RoleLimits,
    /// Of all of them. Outlives the file.
    pub counts: Arc<RoleCounts>,
}

impl Role {
    /// Whether a grant has the right over the key.
    #[must_use]
    pub fn allows(&self, right: DataRight, key: &[u8]) -> bool {
        self.grants.iter().any(|grant| grant.allow.contains(&right) && grant.prefix.contains(key))
    }

    /// Whether *one* grant has the right over all keys from `start` on and before `end`. Grants are not joined, so a
    /// range is answered whole or refused, never thinned out.
    #[must_use]
    pub fn covers(&self, right: DataRight, start: &[u8], end: Option<&[u8]>) -> bool {
        self.grants.iter().any(|grant| grant.allow.contains(&right) && grant.prefix.covers(start, end))
    }

    /// Whether the role has the right over the node.
    #[must_use]
    pub fn administers(&self, right: AdminRight) -> bool {
        self.admin.contains(&right)
    }
}
