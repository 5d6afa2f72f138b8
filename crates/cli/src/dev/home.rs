//! The data directory of a `dev`: one at a time has it, and takes orders on a socket in it.

use std::fs::{File, Permissions, TryLockError, create_dir_all, remove_file, set_permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const SOCKET: &str = "dev.sock";

/// The directory, locked until this is dropped or the process ends.
pub(crate) struct DevHome {
    path: PathBuf,
    directory: File,
}

impl DevHome {
    /// Makes the directory, if it is not there, and locks it.
    pub(crate) fn lock(path: &Path) -> Result<Self> {
        let named = || path.display().to_string();
        create_dir_all(path).with_context(named)?;
        let directory = File::open(path).with_context(named)?;
        match directory.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), directory }),
            Err(TryLockError::WouldBlock) => {
                bail!("another `kvorum dev` runs on {}: stop it, or give another --data-dir", named())
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(named),
        }
    }

    /// Listens for orders of this user. A socket that a killed `dev` has left is replaced: its lock ended with it.
    pub(crate) fn listen(&self) -> Result<UnixListener> {
        let listen = || {
            let socket = short(&self.directory);
            match remove_file(&socket) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&socket)?;
            set_permissions(&socket, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        listen().with_context(|| self.path.join(SOCKET).display().to_string())
    }
}

impl Drop for DevHome {
    fn drop(&mut self) {
        // One that stays behind is replaced by the next.
        let _ = remove_file(short(&self.directory));
    }
}

/// Connects to the `dev` that has this directory.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(short(&File::open(path)?))
}

/// A socket's address has room for 107 bytes, and a directory may be anywhere.
fn short(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))
}
