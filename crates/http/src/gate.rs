//! Who may do what: the keys of clients, their rights and their limits. Nothing of it runs without a file of keys.
//!
//! A key is looked up for each request, in a table that is exchanged whole: one that was revoked fails with the next
//! request of its open connection. A shard compares one number to see whether the table is still the same. As long as
//! it is, a shard keeps the texts of keys that were accepted: to read and hash one again costs a twentieth of a GET.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::HeaderValue;
use kvorum_auth::api_key::{API_KEY_BYTES, ApiKey, ApiKeyError};
use kvorum_auth::failures::{FailureAnswer, FailureCounts};
use kvorum_auth::hash::is_same;
use kvorum_auth::rights::{AdminRight, DataRight};
use kvorum_auth::role::Role;
use kvorum_auth::table::{AuthTable, InFlight, KeyRefusal, KnownKey, OverLimit, Principal};

use crate::metrics::count;
use crate::routes::{Action, Need, Verb};

/// Whether `/metrics` needs a right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// The right `metrics`.
    #[default]
    Granted,
    /// None.
    Open,
}

/// What all shards of a node share of its file of keys.
pub struct AuthState {
    table: Mutex<Arc<AuthTable>>,
    /// Changes with the table.
    generation: AtomicU64,
    failures: Mutex<FailureCounts>,
    metrics_access: MetricsAccess,
    /// Requests without a key, or with one that is not accepted.
    pub unauthorized: AtomicU64,
    /// Such requests of addresses that had too many.
    pub blocked: AtomicU64,
    /// Files that were read anew.
    pub reloads: AtomicU64,
    /// Files that were not taken.
    pub failed_reloads: AtomicU64,
}

impl AuthState {
    /// With the table of a file.
    #[must_use]
    pub fn new(table: AuthTable, metrics_access: MetricsAccess) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(Arc::new(table)),
            generation: AtomicU64::new(0),
            failures: Mutex::default(),
            metrics_access,
            unauthorized: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
            failed_reloads: AtomicU64::new(0),
        })
    }

    /// The table as it is now.
    #[must_use]
    pub fn table(&self) -> Arc<AuthTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Exchanges the table: every request that is looked at from now on is judged by this one.
    pub fn replace(&self, table: AuthTable) {
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        self.generation.fetch_add(1, Ordering::Release);
        count(&self.reloads);
    }
}

/// Why a request is not let through. What a client gets to read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthRefusal {
    #[error("the request has no key: it belongs in the header `Authorization: Bearer kvk_…`")]
    Missing,
    #[error("the header `Authorization` is no `Bearer` with a key, or is there twice")]
    Scheme,
    #[error("the key in the header `Authorization` is malformed: {0}")]
    Malformed(ApiKeyError),
    #[error("{0}")]
    Key(KeyRefusal),
    #[error("a key belongs in the header `Authorization: Bearer`, never in a URL, which is logged: replace it")]
    InQuery,
    #[error("too many requests of this address had no valid key")]
    Blocked { retry_after: Duration },
    #[error("the key's role does not have the right `{needed}`{over}")]
    Forbidden { needed: &'static str, over: &'static str },
    #[error("the key's principal is over its limit `{}` on this node", .0.limit)]
    Over(OverLimit),
}

/// Over what a right is needed.
const OVER_RANGE: &str = " over the whole range, in one grant";

/// One shard's view of the keys.
pub struct Gate {
    state: Arc<AuthState>,
    generation: Cell<u64>,
    table: RefCell<Arc<AuthTable>>,
    /// Keys that were accepted from this table, by their IDs.
    accepted: RefCell<Vec<Option<AcceptedKey>>>,
    /// Time that never steps back, the same on all shards.
    boot: Box<dyn Fn() -> Duration>,
}

/// Places for keys that were accepted: of two with the same place one is read anew each time.
const ACCEPTED_PLACES: usize = 64;

/// A key that was accepted, and its text.
struct AcceptedKey {
    text: [u8; API_KEY_BYTES],
    key: ApiKey,
    known: Arc<KnownKey>,
}

/// A request whose key was accepted, until it is dropped.
pub(crate) struct Authenticated {
    pub(crate) key: ApiKey,
    pub(crate) known: Arc<KnownKey>,
    /// Counts it as in flight.
    _in_flight: Option<InFlight>,
}

/// Looks after a range for as long as it is read.
pub(crate) struct RangePermit {
    gate: Rc<Gate>,
    key: ApiKey,
    principal: Arc<Principal>,
    start: Bytes,
    end: Option<Bytes>,
    wall_ms: Box<dyn Fn() -> u64>,
}

impl Gate {
    /// For one shard.
    #[must_use]
    pub fn new(state: Arc<AuthState>, boot: Box<dyn Fn() -> Duration>) -> Rc<Self> {
        let generation = Cell::new(state.generation.load(Ordering::Acquire));
        let table = RefCell::new(state.table());
        let accepted = RefCell::new((0..ACCEPTED_PLACES).map(|_| None).collect());
        Rc::new(Self { state, generation, table, accepted, boot })
    }

    fn table(&self) -> std::cell::Ref<'_, Arc<AuthTable>> {
        let generation = self.state.generation.load(Ordering::Acquire);
        if generation != self.generation.get() {
            *self.table.borrow_mut() = self.state.table();
            self.accepted.borrow_mut().fill_with(|| None);
            self.generation.set(generation);
        }
        self.table.borrow()
    }

    /// Whose request this is, by its headers `Authorization`.
    ///
    /// # Errors
    /// [`AuthRefusal`]; counted for the address.
    pub(crate) fn authenticate(
        &self,
        header: Option<&HeaderValue>,
        address: IpAddr,
        now_ms: impl FnOnce() -> u64,
    ) -> Result<Authenticated, AuthRefusal> {
        self.look_up(header, now_ms).map_err(|refusal| self.refuse(refusal, address))
    }

    /// Counts a request without a key that is accepted for its address. What it is answered.
    pub(crate) fn refuse(&self, refusal: AuthRefusal, address: IpAddr) -> AuthRefusal {
        count(&self.state.unauthorized);
        let mut failures = self.state.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match failures.note(address, (self.boot)()) {
            FailureAnswer::Unauthorized => refusal,
            FailureAnswer::TooMany(retry_after) => {
                count(&self.state.blocked);
                AuthRefusal::Blocked { retry_after }
            }
        }
    }

    /// The same where a key is not needed: nothing is counted.
    pub(crate) fn look_up(
        &self,
        header: Option<&HeaderValue>,
        now_ms: impl FnOnce() -> u64,
    ) -> Result<Authenticated, AuthRefusal> {
        let text = bearer(header.ok_or(AuthRefusal::Missing)?.as_bytes())?;
        let table = self.table();
        let mut accepted = self.accepted.borrow_mut();
        let place = accepted.get_mut(place_of(text)).expect("a place is below their number");
        let (key, known) = match place {
            Some(accepted) if is_same(&accepted.text, text) => {
                accepted.known.check_end(now_ms).map_err(AuthRefusal::Key)?;
                (accepted.key.clone(), Arc::clone(&accepted.known))
            }
            _ => {
                let key = ApiKey::parse(text).map_err(AuthRefusal::Malformed)?;
                let known = Arc::clone(table.find(&key, now_ms).map_err(AuthRefusal::Key)?);
                let text = text.try_into().expect("a key has this length");
                *place = Some(AcceptedKey { text, key: key.clone(), known: Arc::clone(&known) });
                (key, known)
            }
        };
        Ok(Authenticated { key, known, _in_flight: None })
    }

    /// What the action needs here.
    pub(crate) fn need(&self, action: &Action) -> Need {
        match action.need() {
            Need::Admin(AdminRight::Metrics) if self.state.metrics_access == MetricsAccess::Open => Need::Nothing,
            need => need,
        }
    }

    /// Counts the request against its principal's limits. `bytes` is the length of its value, as far as it is declared.
    ///
    /// # Errors
    /// [`AuthRefusal::Over`].
    pub(crate) fn admit(&self, authenticated: &mut Authenticated, bytes: u64) -> Result<(), AuthRefusal> {
        let principal = &authenticated.known.principal;
        let counts = &principal.role.counts;
        match principal.admit(&self.boot, bytes) {
            Ok(in_flight) => {
                count(&counts.allowed);
                authenticated._in_flight = Some(in_flight);
                Ok(())
            }
            Err(over) => {
                count(&counts.limited);
                Err(AuthRefusal::Over(over))
            }
        }
    }

    /// Counts one more operation of a batch as a request.
    ///
    /// # Errors
    /// [`AuthRefusal::Over`].
    pub(crate) fn admit_item(&self, authenticated: &Authenticated) -> Result<(), AuthRefusal> {
        let principal = &authenticated.known.principal;
        principal.admit_another(&self.boot).map_err(|over| {
            count(&principal.role.counts.limited);
            AuthRefusal::Over(over)
        })
    }

    /// Counts bytes that were not known when the request was admitted.
    pub(crate) fn charge(&self, authenticated: &Authenticated, bytes: usize) {
        authenticated.known.principal.charge(&self.boot, bytes as u64);
    }

    /// What looks after a range that was let through.
    pub(crate) fn permit(
        self: &Rc<Self>,
        authenticated: &Authenticated,
        start: &Bytes,
        end: Option<&Bytes>,
        wall_ms: Box<dyn Fn() -> u64>,
    ) -> RangePermit {
        RangePermit {
            gate: Rc::clone(self),
            key: authenticated.key.clone(),
            principal: Arc::clone(&authenticated.known.principal),
            start: start.clone(),
            end: end.cloned(),
            wall_ms,
        }
    }
}

impl RangePermit {
    /// Whether the range may go on: the key may have been revoked, or its role may grant less.
    pub(crate) fn may_go_on(&self) -> bool {
        let table = self.gate.table();
        let known = table.find(&self.key, &self.wall_ms);
        known.is_ok_and(|known| known.principal.role.covers(DataRight::Read, &self.start, self.end.as_deref()))
    }

    /// The same, as what the client is told.
    ///
    /// # Errors
    /// [`AuthRefusal::Forbidden`]
    pub(crate) fn check(&self) -> Result<(), AuthRefusal> {
        let forbidden = AuthRefusal::Forbidden { needed: DataRight::Read.name(), over: OVER_RANGE };
        if self.may_go_on() { Ok(()) } else { Err(forbidden) }
    }

    /// Counts the bytes of a page.
    pub(crate) fn charge(&self, bytes: usize) {
        self.principal.charge(&self.gate.boot, bytes as u64);
    }
}

impl Authenticated {
    fn role(&self) -> &Role {
        &self.known.principal.role
    }

    /// Whether the role has what the action needs. Comes before anything is looked up, so it shows nothing of what
    /// there is.
    ///
    /// # Errors
    /// [`AuthRefusal::Forbidden`], which names the right.
    pub(crate) fn authorize(&self, action: &Action, need: Need) -> Result<(), AuthRefusal> {
        let (is_granted, needed, over) = match (need, action) {
            (Need::Nothing | Need::Key, _) => return Ok(()),
            (Need::Admin(right), _) => (self.role().administers(right), right.name(), ""),
            (Need::Data(right), Action::Entity { key, .. }) => {
                (self.role().allows(right, key.as_bytes()), right.name(), " over this key")
            }
            (Need::Data(right), Action::Range { start, end }) => {
                (self.role().covers(right, start, end.as_deref()), right.name(), OVER_RANGE)
            }
            (Need::Data(right), Action::Scan(scan) | Action::Script(scan)) => {
                (self.role().covers(right, &scan.start, scan.end.as_deref()), right.name(), OVER_RANGE)
            }
            (Need::Data(_), _) => unreachable!("rights over data are needed for data"),
        };
        if is_granted {
            return Ok(());
        }
        count(&self.role().counts.denied);
        Err(AuthRefusal::Forbidden { needed, over })
    }

    /// Whether the role may read all of a range.
    ///
    /// # Errors
    /// As [`Authenticated::authorize`].
    pub(crate) fn authorize_range(&self, start: &[u8], end: Option<&Bytes>) -> Result<(), AuthRefusal> {
        if self.role().covers(DataRight::Read, start, end.map(|end| &**end)) {
            return Ok(());
        }
        count(&self.role().counts.denied);
        Err(AuthRefusal::Forbidden { needed: DataRight::Read.name(), over: OVER_RANGE })
    }

    /// Whether the role has the right that an operation of a batch needs.
    ///
    /// # Errors
    /// As [`Authenticated::authorize`].
    pub(crate) fn authorize_item(&self, verb: Verb, key: &[u8]) -> Result<(), AuthRefusal> {
        let right = verb.right();
        if self.role().allows(right, key) {
            return Ok(());
        }
        count(&self.role().counts.denied);
        Err(AuthRefusal::Forbidden { needed: right.name(), over: " over this key" })
    }

    /// Whether the role may read every key.
    pub(crate) fn reads_everything(&self) -> bool {
        self.role().covers(DataRight::Read, &[], None)
    }

    /// Whether the principal may see what the cluster is made of.
    pub(crate) fn sees_status(&self) -> bool {
        self.role().administers(AdminRight::Status)
    }
}

/// The text of the key in a header `Authorization` (RFC 6750, 2.1).
fn bearer(header: &[u8]) -> Result<&[u8], AuthRefusal> {
    let (scheme, key) = header.split_at_checked("Bearer ".len()).ok_or(AuthRefusal::Scheme)?;
    if !scheme.eq_ignore_ascii_case(b"Bearer ") {
        return Err(AuthRefusal::Scheme);
    }
    Ok(key.trim_ascii())
}

/// By the last digits of the key's ID.
fn place_of(text: &[u8]) -> usize {
    let digit = |at: usize| text.get(at).copied().map_or(0, usize::from);
    (digit(14) * 16 + digit(15)) % ACCEPTED_PLACES
}

/// Whether a query seems to have a key in it: under a usual name, or by its look.
pub(crate) fn has_key(query: &str) -> bool {
    const NAMES: [&str; 6] = ["key", "api_key", "apikey", "access_token", "token", "authorization"];
    query.split('&').any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        NAMES.iter().any(|known| name.eq_ignore_ascii_case(known)) || value.starts_with("kvk_")
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use hyper::header::HeaderValue;
    use kvorum_auth::api_key::{ApiKey, KeyId};
    use kvorum_auth::file::parse_auth_file;
    use kvorum_auth::table::{AuthTable, KeyRefusal};

    use super::{AuthRefusal, AuthState, Gate, MetricsAccess, bearer, has_key};

    fn table(keys: &[(&ApiKey, &str)]) -> AuthTable {
        let entry = |(key, rest): &(&ApiKey, &str)| {
            let (id, sha256) = (key.id(), key.digest());
            format!("[[key]]\nid = \"{id}\"\nname = \"{id}\"\nsha256 = \"{sha256}\"\nrole = \"r\"\n{rest}\n")
        };
        let keys: String = keys.iter().map(entry).collect();
        AuthTable::new(parse_auth_file(&format!("[role.r]\n{keys}")).unwrap(), None)
    }

    #[test]
    fn a_key_that_was_accepted_is_judged_by_the_table_of_now_and_by_its_end() {
        let key = |id: u8, secret: u8| ApiKey::new(KeyId::new([id; 6]), [secret; 32]);
        let (known, ends, other) = (key(1, 1), key(2, 2), key(1, 9));
        let state =
            AuthState::new(table(&[(&known, ""), (&ends, "not_after = 1970-01-01T00:00:01Z")]), MetricsAccess::Granted);
        let gate = Gate::new(Arc::clone(&state), Box::new(|| Duration::ZERO));
        let look_up = |key: &ApiKey, now_ms: u64| {
            let header = HeaderValue::try_from(format!("Bearer {}", key.text())).unwrap();
            gate.look_up(Some(&header), || now_ms).map(|found| found.key.id())
        };
        let unknown = Err(AuthRefusal::Key(KeyRefusal::Unknown));
        for _ in 0..2 {
            assert_eq!(look_up(&known, 0), Ok(known.id()));
            assert_eq!(look_up(&other, 0), unknown, "the same ID, another secret");
            assert_eq!(look_up(&ends, 999), Ok(ends.id()));
            assert_eq!(look_up(&ends, 1000), Err(AuthRefusal::Key(KeyRefusal::Expired)));
        }
        state.replace(table(&[(&ends, "")]));
        assert_eq!((look_up(&known, 0), look_up(&ends, 1000)), (unknown, Ok(ends.id())));
    }

    #[test]
    fn a_key_is_read_from_its_header_alone() {
        let key = ApiKey::new(KeyId::new([7; 6]), [9; 32]);
        for header in [format!("Bearer {}", key.text()), format!("bearer   {} ", key.text())] {
            assert_eq!(bearer(header.as_bytes()), Ok(key.text().as_bytes()), "{header}");
        }
        for header in ["", "Bearer", &key.text(), &format!("Basic {}", key.text()), "Bearer\u{e9} x"] {
            assert_eq!(bearer(header.as_bytes()), Err(AuthRefusal::Scheme), "{header}");
        }
        assert!(has_key("id=a&access_token=x") && has_key("Key=1") && has_key("id=kvk_0"));
        assert!(!has_key("id=key&ack=1") && !has_key(""));
    }
}
