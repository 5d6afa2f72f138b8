//! The file with a client's key, which only its owner may read: keys do not belong on a command line, where all users
//! sees them.

use std::fmt;
use std::path::Path;

use kvorum_auth::api_key::ApiKey;
use kvorum_auth::private_file::read_private;

/// A client's key, checked. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientKey(String);

impl ClientKey {
    /// The key's text, for the header of a request.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientKey")
    }
}

/// Reads a file with a key in one line.
///
/// # Errors
/// What is wrong, without a part of the key.
pub(crate) fn client_key(path: &str) -> Result<ClientKey, String> {
    let text = read_private(Path::new(path)).map_err(|error| error.to_string())?;
    let key = ApiKey::parse(text.trim().as_bytes());
    let key = key.map_err(|error| format!("{path}: there is no key in it: {error}"))?;
    Ok(ClientKey(key.text()))
}
