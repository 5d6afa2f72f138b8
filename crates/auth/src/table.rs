//! The keys of a file as requests look them up: immutable, and exchanged whole.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::api_key::{ApiKey, KeyId};
use crate::file::AuthFile;
use crate::hash::Digest256;
use crate::rate::Meter;
use crate::role::{Role, RoleLimits};

/// What a principal uses of this node. Outlives the table, so that reading the file anew gives no new budget.
#[derive(Debug, Default)]
pub struct PrincipalUsage {
    requests: Meter,
    bytes: Meter,
    in_flight: AtomicU32,
}

/// What the keys of one name belong to.
#[derive(Debug)]
pub struct Principal {
    /// As the file has it.
    pub name: String,
    /// What it may do.
    pub role: Arc<Role>,
    /// What it uses.
    pub usage: Arc<PrincipalUsage>,
}

/// A principal's limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverLimit {
    /// Which: `requests_per_second`, `bytes_per_second` or `in_flight`.
    pub limit: &'static str,
    /// When another request may pass.
    pub retry_after: Duration,
}

impl Principal {
    /// Admits a request with `bytes` of a value. `now` is read where a rate is limited, on a clock that never steps
    /// back. What it counts as in flight ends with the guard.
    ///
    /// # Errors
    /// [`OverLimit`]. Then nothing is counted in flight.
    pub fn admit(&self, now: impl FnOnce() -> Duration, bytes: u64) -> Result<InFlight, OverLimit> {
        let RoleLimits { requests, bytes: bytes_rate, in_flight } = self.role.limits;
        let guard = InFlight::enter(&self.usage);
        if in_flight.is_some_and(|max| guard.count > max) {
            return Err(OverLimit { limit: "in_flight", retry_after: Duration::ZERO });
        }
        if requests.is_none() && bytes_rate.is_none() {
            return Ok(guard);
        }
        let now = now();
        let refused = |limit| move |retry_after| OverLimit { limit, retry_after };
        // What is refused for its bytes counts as a request, and not the other way round: bytes are the scarcer.
        if let Some(rate) = requests {
            self.usage.requests.take(rate, now, 1).map_err(refused("requests_per_second"))?;
        }
        if let Some(rate) = bytes_rate {
            self.usage.bytes.take(rate, now, bytes).map_err(refused("bytes_per_second"))?;
        }
        Ok(guard)
    }

    /// Admits another operation of a request that was admitted.
    ///
    /// # Errors
    /// [`OverLimit`].
    pub fn admit_another(&self, now: impl FnOnce() -> Duration) -> Result<(), OverLimit> {
        let Some(rate) = self.role.limits.requests else { return Ok(()) };
        let refused = |retry_after| OverLimit { limit: "requests_per_second", retry_after };
        self.usage.requests.take(rate, now(), 1).map_err(refused)
    }

    /// Counts bytes that were not known beforehand: those of an answer, or of a body without a declared length.
    pub fn charge(&self, now: impl FnOnce() -> Duration, bytes: u64) {
        if let Some(rate) = self.role.limits.bytes {
            self.usage.bytes.charge(rate, now(), bytes);
        }
    }
}

/// A request counts as in flight until this is dropped.
#[derive(Debug)]
pub struct InFlight {
    usage: Arc<PrincipalUsage>,
    count: u32,
}

impl InFlight {
    fn enter(usage: &Arc<PrincipalUsage>) -> Self {
        let count = usage.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        Self { usage: Arc::clone(usage), count }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.usage.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a key is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRefusal {
    /// No key of the file has this ID and this secret.
    #[error("the key is not known to this node")]
    Unknown,
    /// Its time is over.
    #[error("the key has expired")]
    Expired,
}

/// A key of the file.
pub struct KnownKey {
    secret: Digest256,
    /// Milliseconds since the epoch. The key is refused from then on.
    pub not_after_ms: Option<u64>,
    /// The principal that it belongs to.
    pub principal: Arc<Principal>,
}

impl KnownKey {
    /// Whether its time is not over.
    ///
    /// # Errors
    /// [`KeyRefusal::Expired`]
    pub fn check_end(&self, now_ms: impl FnOnce() -> u64) -> Result<(), KeyRefusal> {
        if self.not_after_ms.is_some_and(|end| now_ms() >= end) { Err(KeyRefusal::Expired) } else { Ok(()) }
    }
}

/// What a file changes. Shown without more than IDs of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableChanges {
    /// Keys that are new.
    pub added: Vec<String>,
    /// Keys that are gone.
    pub removed: Vec<String>,
    /// Keys with another name, role, secret or end.
    pub changed: Vec<String>,
    /// Of the new file.
    pub digest: Digest256,
}

impl fmt::Display for TableChanges {
    /// A sentence, of some hundred characters at most.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 8;
        let list = |ids: &[String]| match ids {
            [] => "none".to_owned(),
            ids if ids.len() > SHOWN_MAX => format!("{} keys", ids.len()),
            ids => ids.join(" "),
        };
        let Self { added, removed, changed, digest } = self;
        write!(f, "added {}, removed {}, changed {}; digest {digest}", list(added), list(removed), list(changed))
    }
}

/// All keys of a file.
pub struct AuthTable {
    keys: HashMap<KeyId, Arc<KnownKey>>,
    principals: BTreeMap<String, Arc<Principal>>,
    roles: Vec<Arc<Role>>,
    digest: Digest256,
}

impl AuthTable {
    /// Of a file. Principals that `previous` has as well keep what they use.
    #[must_use]
    pub fn new(file: AuthFile, previous: Option<&Self>) -> Self {
        let known = |name: &str| previous?.roles.iter().find(|role| role.name == name);
        let counted = |mut role: Role| {
            role.counts = known(&role.name).map(|known| Arc::clone(&known.counts)).unwrap_or_default();
            Arc::new(role)
        };
        let roles: Vec<Arc<Role>> = file.roles.into_iter().map(counted).collect();
        let mut table = Self { keys: HashMap::new(), principals: BTreeMap::new(), roles, digest: file.digest };
        for key in file.keys {
            let role = table.roles.get(key.role).expect("a key's role is among those of its file");
            let usage =
                previous.and_then(|table| table.principals.get(&key.name)).map(|known| Arc::clone(&known.usage));
            let principal = table.principals.entry(key.name.clone()).or_insert_with(|| {
                Arc::new(Principal { name: key.name, role: Arc::clone(role), usage: usage.unwrap_or_default() })
            });
            let known =
                KnownKey { secret: key.secret, not_after_ms: key.not_after_ms, principal: Arc::clone(principal) };
            table.keys.insert(key.id, Arc::new(known));
        }
        table
    }

    /// The key as the file has it. `now_ms` is read where the key ends, since the epoch.
    ///
    /// # Errors
    /// [`KeyRefusal`]. The secret is hashed for an unknown ID as well, so the time does not show which IDs exist.
    pub fn find(&self, key: &ApiKey, now_ms: impl FnOnce() -> u64) -> Result<&Arc<KnownKey>, KeyRefusal> {
        let digest = key.digest();
        let known = self.keys.get(&key.id()).filter(|known| known.secret == digest).ok_or(KeyRefusal::Unknown)?;
        known.check_end(now_ms)?;
        Ok(known)
    }

    /// What is other in `next`.
    #[must_use]
    pub fn changes(&self, next: &Self) -> TableChanges {
        let is_same = |one: &KnownKey, other: &KnownKey| {
            one.secret == other.secret
                && one.not_after_ms == other.not_after_ms
                && one.principal.name == other.principal.name
                && one.principal.role.name == other.principal.role.name
        };
        let ids = |keys: &mut dyn Iterator<Item = &KeyId>| {
            let mut ids: Vec<String> = keys.map(KeyId::to_string).collect();
            ids.sort();
            ids
        };
        TableChanges {
            added: ids(&mut next.keys.keys().filter(|id| !self.keys.contains_key(*id))),
            removed: ids(&mut self.keys.keys().filter(|id| !next.keys.contains_key(*id))),
            changed: ids(&mut next
                .keys
                .iter()
                .filter_map(|(id, key)| self.keys.get(id).filter(|known| !is_same(known, key)).map(|_| id))),
            digest: next.digest,
        }
    }

    /// In the order of their names.
    #[must_use]
    pub fn roles(&self) -> &[Arc<Role>] {
        &self.roles
    }

    /// Of the file's text: nodes with the same file have the same.
    #[must_use]
    pub fn digest(&self) -> Digest256 {
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{AuthTable, KeyRefusal, OverLimit, Principal};
    use crate::api_key::{ApiKey, KeyId};
    use crate::file::parse_auth_file;

    fn key(id: u8) -> ApiKey {
        ApiKey::new(KeyId::new([id; 6]), [id; 32])
    }

    fn entry(key: &ApiKey, name: &str, rest: &str) -> String {
        let (id, sha256) = (key.id(), key.digest());
        format!("[[key]]\nid = \"{id}\"\nname = \"{name}\"\nsha256 = \"{sha256}\"\nrole = \"r\"\n{rest}\n")
    }

    fn table(limits: &str, previous: Option<&AuthTable>) -> AuthTable {
        let keys = entry(&key(1), "one", "") + &entry(&key(2), "one", "not_after = 2027-06-01T00:00:00Z");
        AuthTable::new(parse_auth_file(&format!("[role.r]\n{limits}\n{keys}")).unwrap(), previous)
    }

    fn one(table: &AuthTable) -> &Arc<Principal> {
        &table.find(&key(1), || 0).unwrap_or_else(|refusal| panic!("{refusal}")).principal
    }

    #[test]
    fn a_key_is_found_by_its_id_and_its_secret_until_it_expires() {
        let table = table("", None);
        const END: u64 = 1_811_808_000_000;
        assert_eq!(one(&table).name, "one");
        let found = |key: &ApiKey, now_ms| table.find(key, || now_ms).map(|known| known.principal.clone());
        assert!(Arc::ptr_eq(&found(&key(2), END - 1).unwrap(), one(&table)), "two keys, one principal");
        assert_eq!(found(&key(2), END).unwrap_err(), KeyRefusal::Expired);
        assert!(found(&key(2), END - 1).is_ok(), "the clock stepped back");
        assert_eq!(found(&key(3), 0).unwrap_err(), KeyRefusal::Unknown);
        let wrong = ApiKey::new(key(2).id(), [9; 32]);
        assert_eq!(found(&wrong, END).unwrap_err(), KeyRefusal::Unknown, "nothing is shown of another's key");
    }

    #[test]
    fn a_file_read_anew_gives_nobody_a_new_budget() {
        let limits = "limits = { requests_per_second = 1 }";
        let first = table(limits, None);
        let take = |table: &AuthTable| one(table).admit(|| Duration::ZERO, 0).map(drop);
        assert_eq!((take(&first), take(&first)), (Ok(()), Ok(())));
        let over = OverLimit { limit: "requests_per_second", retry_after: Duration::from_secs(1) };
        assert_eq!(take(&first), Err(over));
        assert_eq!(take(&table(limits, Some(&first))), Err(over));
        assert_eq!(take(&table("", Some(&first))), Ok(()), "a limit that is gone holds nobody");
    }

    #[test]
    fn what_is_in_flight_ends_with_its_guard_and_a_refusal_leaves_nothing() {
        let table = table("limits = { in_flight = 2, bytes_per_second = 100 }", None);
        let guards =
            [one(&table).admit(|| Duration::ZERO, 50).unwrap(), one(&table).admit(|| Duration::ZERO, 0).unwrap()];
        for _ in 0..3 {
            assert_eq!(one(&table).admit(|| Duration::ZERO, 0).unwrap_err().limit, "in_flight");
        }
        drop(guards);
        one(&table).charge(|| Duration::ZERO, 1000);
        let over = one(&table).admit(|| Duration::ZERO, 1).unwrap_err();
        assert_eq!(over, OverLimit { limit: "bytes_per_second", retry_after: Duration::from_millis(9500) });
        assert!(one(&table).admit(|| over.retry_after, 1).is_ok());
    }
}
