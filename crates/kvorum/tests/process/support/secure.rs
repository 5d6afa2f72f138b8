//! Keys of clients and secrets of peers, made by the binary itself.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::{Cluster, kvorum, wait_until};

/// Roles of the tests.
pub const ROLES: &str = r#"
[role.operator]
grants = [{ prefix = "", allow = ["read", "write", "delete"] }]
admin = ["status", "metrics", "repair", "scrub", "backup", "profile", "cluster"]
[role.app]
grants = [{ prefix = "app/", allow = ["read", "write", "delete"] }, { prefix = "shared/", allow = ["read"] }]
[role.slow]
grants = [{ prefix = "app/", allow = ["read", "write"] }]
limits = { requests_per_second = 5, in_flight = 2 }
[role.metrics]
admin = ["metrics"]
[role.observer]
admin = ["status"]
"#;

/// A file that only its owner may read.
pub fn private(path: &Path, text: &str) {
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, text).unwrap();
    std::fs::set_permissions(&fresh, Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&fresh, path).unwrap();
}

/// What `kvorum` prints to stdout for a command that ends well.
#[track_caller]
pub fn said(args: &[&str]) -> String {
    let output = kvorum().args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The file of keys of a cluster.
pub struct Keys(pub PathBuf);

impl Keys {
    /// With the roles of the tests, and no key yet.
    pub fn new(path: PathBuf) -> Self {
        private(&path, ROLES);
        Self(path)
    }

    /// Another key.
    #[track_caller]
    pub fn add(&self, name: &str, role: &str) -> String {
        said(&["key", "new", name, "--role", role, "--file", self.path()])
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

/// The ID of a key.
pub fn id_of(key: &str) -> &str {
    &key[4..16]
}

impl Cluster {
    /// Nodes that know each other by a secret and want keys of clients; started, and whole. Clients are operators.
    pub fn secured(n: usize, environment: &[(&str, &str)]) -> (Self, Keys) {
        let mut cluster = Self::prepare(n, environment);
        let keys = cluster.guard();
        cluster.spawn_all();
        cluster.wait_whole();
        (cluster, keys)
    }

    /// Has a node read its file of keys anew, and waits until it has.
    pub fn reload(&self, index: usize) {
        let reloads = || self.metric(index, "kvorum_auth_reloads_total");
        let before = reloads();
        self.signal(index, Signal::HUP);
        wait_until("the file of keys is read anew", || reloads() > before);
    }

    /// The same for nodes that are not started yet.
    pub fn guard(&mut self) -> Keys {
        let secret = self.root().join("peers.secret");
        said(&["secret", "new", secret.to_str().unwrap()]);
        let keys = Keys::new(self.root().join("keys.toml"));
        let operator = keys.add("operator", "operator");
        self.set_all("KVORUM_PEER_SECRET_FILE", secret.to_str().unwrap());
        self.set_all("KVORUM_AUTH_FILE", keys.path());
        self.set_key(&operator);
        keys
    }
}
