//! Files that hold secrets: readable by their owner alone, and read whole or not at all.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The longest file of keys or secrets that is read.
pub const PRIVATE_FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// The system refused.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// Others may read or change it.
    #[error("{}: its mode is {mode:04o}, so others than its owner may use it: `chmod 600` it, and change what it holds \
             if anybody could have read it", path.display())]
    NotPrivate {
        /// Which.
        path: PathBuf,
        /// The lowest twelve bits of its mode.
        mode: u32,
    },
    /// Another user's.
    #[error("{}: it belongs to user {owner}: it has to belong to the user of this process, or to root", path.display())]
    Foreign {
        /// Which.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Not a file, too long, or not text.
    #[error("{}: it is not a text file of at most {PRIVATE_FILE_BYTES_MAX} bytes", path.display())]
    NotText {
        /// Which.
        path: PathBuf,
    },
    /// Written to while it was read.
    #[error("{}: it changed while it was read: replace it by renaming a whole file over it", path.display())]
    Changed {
        /// Which.
        path: PathBuf,
    },
}

/// Reads a file of secrets. Links are followed: Kubernetes mounts secrets as links.
///
/// What is checked is the file that is open and not its path, so it cannot be exchanged between the check and the use.
///
/// # Errors
/// [`PrivateFileError`], which names the file and says what to do.
pub fn read_private(path: &Path) -> Result<String, PrivateFileError> {
    let unreadable = |error| PrivateFileError::Unreadable { path: path.to_owned(), error };
    let not_text = || PrivateFileError::NotText { path: path.to_owned() };
    let file = File::open(path).map_err(unreadable)?;
    let before = file.metadata().map_err(unreadable)?;
    if !before.is_file() || before.len() > PRIVATE_FILE_BYTES_MAX {
        return Err(not_text());
    }
    let mode = before.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(PrivateFileError::NotPrivate { path: path.to_owned(), mode });
    }
    let owner = before.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(PrivateFileError::Foreign { path: path.to_owned(), owner });
    }
    let mut bytes = Vec::new();
    (&file).take(PRIVATE_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let after = file.metadata().map_err(unreadable)?;
    let state = |data: &std::fs::Metadata| (data.len(), data.mtime(), data.mtime_nsec());
    if state(&before) != state(&after) || bytes.len() as u64 != after.len() {
        return Err(PrivateFileError::Changed { path: path.to_owned() });
    }
    String::from_utf8(bytes).map_err(|_| not_text())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::{PRIVATE_FILE_BYTES_MAX, PrivateFileError, read_private};

    #[test]
    fn a_file_that_others_may_use_is_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        assert!(matches!(read_private(&path), Err(PrivateFileError::Unreadable { .. })));
        std::fs::write(&path, "secret").unwrap();
        for (mode, taken) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            match read_private(&path) {
                Ok(text) => assert!(taken && text == "secret", "{mode:o}"),
                Err(error) => {
                    assert!(!taken, "{mode:o}: {error}");
                    let text = error.to_string();
                    assert!(text.contains(&format!("{mode:04o}")) && text.contains("chmod 600"), "{text}");
                }
            }
        }
    }

    #[test]
    fn links_are_followed_and_what_is_no_text_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("keys"), directory.path().join("link"));
        let private = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        };
        private(b"text");
        symlink(&path, &link).unwrap();
        assert_eq!(read_private(&link).unwrap(), "text");
        assert!(matches!(read_private(directory.path()), Err(PrivateFileError::NotText { .. })));
        private(&[0xff, 0xfe]);
        assert!(matches!(read_private(&path), Err(PrivateFileError::NotText { .. })));
        private(&vec![b'#'; usize::try_from(PRIVATE_FILE_BYTES_MAX).unwrap() + 1]);
        assert!(matches!(read_private(&path), Err(PrivateFileError::NotText { .. })));
    }
}
