//! Files that are written whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::Error;

/// Writes a document as JSON, whole or not at all.
///
/// # Errors
/// [`Error::System`].
pub fn write_json(path: &Path, document: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(document).expect("documents have names as keys") + "\n";
    write_file(path, text.as_bytes())
}

/// Writes a file whole or not at all: then what was there stays.
///
/// # Errors
/// [`Error::System`].
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let write = || {
        let mut file = fs::File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    write().map_err(|cause: io::Error| {
        // What is left of it is of no use, and the space is needed.
        let _ = fs::remove_file(&partial);
        Error::System { what: path.display().to_string(), cause }
    })
}
