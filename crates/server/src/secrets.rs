//! What a node keeps secret: read at its start, from files that are its owner's alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvorum_auth::file::{AuthFile, AuthFileError, parse_auth_file};
use kvorum_auth::hash::MacKey;
use kvorum_auth::peer_secret::{PeerSecret, PeerSecretError};
use kvorum_auth::private_file::{PrivateFileError, read_private};
use kvorum_auth::table::AuthTable;
use kvorum_config::{AuthSection, Config, MetricsReaders, PeerSection};
use kvorum_http::{AuthState, MetricsAccess};
use kvorum_peer::proof::{ClusterSecret, SecretNeed};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Why a file of secrets is not taken. Each says what to do, and none has a part of a secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be read, or others can.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// What it holds is no file of keys.
    #[error("{}: {error}", path.display())]
    Auth {
        /// Which.
        path: PathBuf,
        /// What, and in which line.
        error: AuthFileError,
    },
    /// The system refuses the thread that looks after them.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The audit cannot be written there.
    #[error("the audit cannot be written to {}: {error}", path.display())]
    Audit {
        /// Where.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// What it holds is no secret of an audit.
    #[error("{}: it is not a line of 64 hexadecimal digits: `kvorum secret new FILE` writes such a file", path.display())]
    AuditSecret {
        /// Which.
        path: PathBuf,
    },
    /// What it holds is no secret of a cluster.
    #[error("{}: {error}", path.display())]
    Peer {
        /// Which.
        path: PathBuf,
        /// Why.
        error: PeerSecretError,
    },
}

/// Reads the file of the cluster's secret.
///
/// # Errors
/// [`SecretError`]
pub fn read_peer_secret(path: &Path) -> Result<PeerSecret, SecretError> {
    let text = read_private(path)?;
    PeerSecret::parse(&text).map_err(|error| SecretError::Peer { path: path.to_owned(), error })
}

/// Reads a file of keys.
///
/// # Errors
/// [`SecretError`]; nothing of the file is taken then.
pub fn read_auth_file(path: &Path) -> Result<AuthFile, SecretError> {
    let text = read_private(path)?;
    parse_auth_file(&text).map_err(|error| SecretError::Auth { path: path.to_owned(), error })
}

/// The keys of clients, if the settings name a file of them.
///
/// # Errors
/// [`SecretError`]
pub(crate) fn auth(settings: &AuthSection) -> Result<Option<Arc<AuthState>>, SecretError> {
    let Some(path) = &settings.file else { return Ok(None) };
    let table = AuthTable::new(read_auth_file(path)?, None);
    hide_memory();
    let access = match settings.metrics {
        MetricsReaders::Granted => MetricsAccess::Granted,
        MetricsReaders::All => MetricsAccess::Open,
    };
    Ok(Some(AuthState::new(table, access)))
}

/// The secret under which keys are named.
pub(crate) fn read_audit_secret(path: &Path) -> Result<MacKey, SecretError> {
    let text = read_private(path)?;
    MacKey::from_hex(text.trim()).ok_or_else(|| SecretError::AuditSecret { path: path.to_owned() })
}

/// Checks all files of secrets that the settings name.
///
/// # Errors
/// [`SecretError`] of the first that a node would not take.
pub fn check(config: &Config) -> Result<(), SecretError> {
    config.auth.file.as_deref().map(read_auth_file).transpose()?;
    config.peer.secret_file.as_deref().map(read_peer_secret).transpose()?;
    config.audit.secret_file.as_deref().map(read_audit_secret).transpose()?;
    Ok(())
}

/// The cluster's secret, if the settings name one.
///
/// # Errors
/// [`SecretError`]
pub(crate) fn peer_secret(settings: &PeerSection) -> Result<Option<Arc<ClusterSecret>>, SecretError> {
    let Some(path) = &settings.secret_file else { return Ok(None) };
    let secret = read_peer_secret(path)?;
    hide_memory();
    let need = if settings.secret_optional { SecretNeed::Optional } else { SecretNeed::Required };
    if settings.secret_optional {
        tracing::warn!(
            "peer.secret_optional: whoever reaches this port may call itself a peer; end this once all nodes have the secret"
        );
    }
    let draw = || {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).expect("the system has random numbers, as it had at the start");
        nonce
    };
    Ok(Some(Arc::new(ClusterSecret::new(secret, need, Box::new(draw)))))
}

/// Only root may look into the memory of a process that has a secret: no debugger, and no dump of its memory.
pub(crate) fn hide_memory() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "others may look into this process's memory");
    }
}
