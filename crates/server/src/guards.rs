//! What decides who may do what with the node: read at its start, before anything of it is reached.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use kvorum_base::clock::TimeSource;
use kvorum_config::{Config, Exposure};
use kvorum_http::AuthState;
use kvorum_peer::proof::ClusterSecret;

use crate::audit::{self, Audit, AuditThread};
use crate::reload::{self, ReloadParts, Reloader};
use crate::secrets::{self, SecretError};

/// The cluster's secret, the keys of clients, the audit: what there is of them.
#[derive(Clone)]
pub(crate) struct Guards {
    /// What peers have to show.
    pub(crate) peer_secret: Option<Arc<ClusterSecret>>,
    /// The keys of clients.
    pub(crate) auth: Option<Arc<AuthState>>,
    /// Where refusals and orders are written.
    pub(crate) audit: Option<Arc<Audit>>,
    /// Whether all that reaches the node from other machines may do everything, or call itself a peer.
    pub(crate) is_insecure: bool,
}

/// The threads behind them.
pub(crate) struct GuardThreads {
    reloader: Reloader,
    audit: Option<AuditThread>,
}

impl Guards {
    /// Reads the files that the settings name, and starts what looks after them.
    ///
    /// # Errors
    /// Of the first file that cannot be used; then nothing was started.
    pub(crate) fn start(config: &Config, time: &Arc<dyn TimeSource>) -> Result<(Self, GuardThreads), SecretError> {
        let peer_secret = secrets::peer_secret(&config.peer)?;
        let seen = config.auth.file.as_deref().and_then(reload::state);
        let auth = secrets::auth(&config.auth)?;
        let (seed, wall) = (time.wall_ms() << 16, time.clone());
        let audit = audit::start(&config.audit, config.own.as_str(), seed, Box::new(move || wall.wall_ms()))?;
        let (audit, audit_thread) = audit.unzip();
        let of_auth = config.auth.file.clone().zip(auth.clone());
        let reloader = Reloader::start(ReloadParts { auth: of_auth, seen, audit: audit.clone() });
        let reloader = reloader.map_err(SecretError::Thread)?;
        let is_insecure = match config.exposure() {
            Ok(Exposure::Insecure) => true,
            // Until the secret is required, all that calls itself a peer is one.
            Ok(Exposure::Guarded) => config.members.len() > 1 && config.peer.secret_optional,
            Ok(Exposure::Loopback) | Err(_) => false,
        };
        Ok((Self { peer_secret, auth, audit, is_insecure }, GuardThreads { reloader, audit: audit_thread }))
    }
}

impl GuardThreads {
    /// Has the files read anew.
    pub(crate) fn asker(&self) -> SyncSender<()> {
        self.reloader.asker()
    }

    /// Ends them, once nothing else has the guards any more: what waits is written.
    pub(crate) fn stop(self) {
        self.reloader.stop();
        if self.audit.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that writes the audit ended in a panic");
        }
    }
}
