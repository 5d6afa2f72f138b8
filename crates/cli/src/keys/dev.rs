//! What `dev --secure` protects its cluster with: a secret, a file of keys, and one key that may do everything.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kvorum_auth::api_key::{ApiKey, KeyId};
use kvorum_auth::hash::hex;

use super::random;
use crate::key_file::client_key;

/// Files below the cluster's data directory. They stay for its next start.
#[derive(Clone, Debug)]
pub(crate) struct DevSecrets {
    directory: PathBuf,
}

impl DevSecrets {
    /// Makes the files, if they are not there.
    ///
    /// # Errors
    /// The system's, with the file's name.
    pub(crate) fn prepare(data_dir: &Path) -> Result<Self> {
        let secrets = Self { directory: data_dir.join("secrets") };
        std::fs::create_dir_all(&secrets.directory).with_context(|| secrets.directory.display().to_string())?;
        if !secrets.key_file().exists() {
            let key = ApiKey::new(KeyId::new(random()?), random()?);
            write(&secrets.peer_secret(), &format!("{}\n", hex(&random::<32>()?)))?;
            write(&secrets.auth_file(), &auth_file(&key))?;
            // Last: with it all are there.
            write(&secrets.key_file(), &format!("{}\n", key.text()))?;
        }
        Ok(secrets)
    }

    /// What the nodes are told.
    pub(crate) fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [("KVORUM_PEER_SECRET_FILE", self.peer_secret()), ("KVORUM_AUTH_FILE", self.auth_file())]
    }

    /// The file with the key.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.directory.join("operator.key")
    }

    /// The key itself.
    ///
    /// # Errors
    /// If its file has changed.
    pub(crate) fn key(&self) -> Result<String> {
        let path = self.key_file();
        let key = client_key(&path.to_string_lossy()).map_err(anyhow::Error::msg)?;
        Ok(key.text().to_owned())
    }

    fn peer_secret(&self) -> PathBuf {
        self.directory.join("peers.secret")
    }

    fn auth_file(&self) -> PathBuf {
        self.directory.join("keys.toml")
    }
}

fn auth_file(key: &ApiKey) -> String {
    let (id, sha256) = (key.id(), key.digest());
    format!(
        r#"# Keys of a cluster of `kvorum dev --secure`.
[role.operator]
grants = [{{ prefix = "", allow = ["read", "write", "delete"] }}]
admin = ["status", "metrics", "repair", "scrub", "backup", "profile", "cluster"]

[[key]]
id = "{id}"
name = "operator"
sha256 = "{sha256}"
role = "operator"
"#
    )
}

/// Replaces what an interrupted start may have left.
fn write(path: &Path, text: &str) -> Result<()> {
    let make = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    make().with_context(|| path.display().to_string())
}
