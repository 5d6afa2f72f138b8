//! The directory's files, read and replaced whole.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use super::error::DataDirError;

pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataDirError + use<> {
    let path = path.to_owned();
    move |source| DataDirError::Io { action, path, source }
}

pub(super) fn read(path: &Path) -> Result<Option<String>, DataDirError> {
    let text = read_bytes(path)?.map(String::from_utf8).transpose();
    text.map_err(|_| DataDirError::Damaged(path.to_owned()))
}

pub(super) fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, DataDirError> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", path)(error)),
    }
}

/// Replaces a file: after a crash it is the old one or the new one, and the new one once this returned.
pub(super) fn write(directory: &Path, name: &str, bytes: impl AsRef<[u8]>) -> Result<(), DataDirError> {
    let path = directory.join(name);
    let fresh = directory.join(format!("{name}.new"));
    let replace = || {
        let mut file = File::create(&fresh)?;
        file.write_all(bytes.as_ref())?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        File::open(directory)?.sync_all()
    };
    replace().map_err(io_error("write", &path))
}
