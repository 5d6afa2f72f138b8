//! What may be done with the node from where, by its settings: nothing from other machines by default.

use crate::model::Config;

/// How a node is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Only this machine reaches it.
    Loopback,
    /// Clients have keys, and peers a secret.
    Guarded,
    /// All that reaches it may do everything, as the settings ask for.
    Insecure,
}

/// A node would be open to all that reaches it, and no setting asks for that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "listen = \"{listen}\" is reached from other machines, and {missing} not set: whoever reaches the port could do \
     everything. {advice}, listen on 127.0.0.1, or say --insecure if only operators reach this network"
)]
pub struct ExposureError {
    listen: String,
    missing: &'static str,
    advice: &'static str,
}

impl Config {
    /// How this node is protected.
    ///
    /// # Errors
    /// [`ExposureError`]
    pub fn exposure(&self) -> Result<Exposure, ExposureError> {
        const KEYS: &str = "Make a file of keys with `kvorum key new` and set auth.file";
        const SECRET: &str = "Make a secret with `kvorum secret new` and set peer.secret_file on every node";
        const BOTH: &str = "Make a file of keys with `kvorum key new` and set auth.file, make a secret with `kvorum secret new` and \
                            set peer.secret_file on every node";
        if self.listen.is_loopback() {
            return Ok(Exposure::Loopback);
        }
        let needs_secret = self.members.len() > 1 && self.peer.secret_file.is_none();
        let (missing, advice) = match (self.auth.file.is_none(), needs_secret) {
            (false, false) => return Ok(Exposure::Guarded),
            (true, false) => ("auth.file is", KEYS),
            (false, true) => ("peer.secret_file is", SECRET),
            (true, true) => ("auth.file and peer.secret_file are", BOTH),
        };
        if self.is_insecure {
            return Ok(Exposure::Insecure);
        }
        Err(ExposureError { listen: self.listen.to_string(), missing, advice })
    }
}
