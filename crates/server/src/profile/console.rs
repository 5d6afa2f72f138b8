//! The console of the admin listener: pages that show this node's cluster, and change nothing.
//!
//! It shares the listener's port: a connection whose first request is for no profile is handed over. Its pages need a
//! token, which is in a file that only the node's user reads. It asks the cluster's nodes as any client does, so it is
//! there only where they want no key; `kvorum console` shows them one.

use std::fs::{OpenOptions, remove_file};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kvorum_config::{ClusterMember, Config};
use kvorum_console::{Console, ConsoleLevel, ConsoleMode, ConsoleNode, ConsoleSettings, start};

/// What paths of profiles begin with.
pub(crate) const PREFIX: &str = "/debug/profile/";
/// In the node's data directory.
const FILE: &str = "console.url";
/// Enough of a request to see what it is for.
const LOOKED_AT: usize = 64;
/// For those bytes to come. A connection of which nothing comes holds a place of the listener's.
const PATIENCE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// The console, and the file with its URL.
pub(crate) struct AdminConsole {
    console: Console,
    file: PathBuf,
}

impl AdminConsole {
    /// Starts it for the nodes of the cluster, and writes its URL below the data directory.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(config: &Config, address: SocketAddr) -> io::Result<Self> {
        let node = |member: &ClusterMember| {
            let (url, address) = (member.url.to_string(), member.url.address().to_string());
            ConsoleNode { url, address, admin: None }
        };
        let nodes = config.members.iter().map(node).collect();
        let settings = ConsoleSettings {
            nodes,
            key: None,
            level: ConsoleLevel::Read,
            mode: ConsoleMode::Admin,
            lab: None,
            jobs: None,
            assets: None,
        };
        let console = start(settings, None)?;
        let file = config.data_dir.join(FILE);
        // One of an earlier start may have other rights.
        match remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
        writeln!(written, "{}", console.url_at(address))?;
        tracing::info!(file = %file.display(), "the console's address is in this file");
        Ok(Self { console, file })
    }

    /// Whether a connection's first request is for no profile. It waits until that shows, for a while.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn is_meant(&self, stream: &TcpStream) -> io::Result<bool> {
        let end = Instant::now() + PATIENCE;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut bytes = [0; LOOKED_AT];
        loop {
            let read = stream.peek(&mut bytes)?;
            let request = bytes.get(..read).unwrap_or_default();
            if let Some(is_other) = is_for_other(request) {
                return Ok(is_other);
            }
            if read == 0 || Instant::now() > end {
                return Ok(false);
            }
            // Looking takes nothing away: it does not wait for more.
            std::thread::sleep(POLL);
        }
    }

    /// Hands a connection over.
    ///
    /// # Errors
    /// It has too many.
    pub(crate) fn take_over(&self, stream: TcpStream) -> io::Result<()> {
        self.console.take_over(stream)
    }
}

impl Drop for AdminConsole {
    fn drop(&mut self) {
        // One that stays behind names a token that nobody takes.
        let _ = remove_file(&self.file);
    }
}

/// Whether a request is for something else than a profile; none while its beginning does not show that.
fn is_for_other(request: &[u8]) -> Option<bool> {
    let path = request.iter().position(|byte| *byte == b' ').and_then(|space| request.get(space + 1..))?;
    let known = path.len().min(PREFIX.len());
    if path.get(..known) != PREFIX.as_bytes().get(..known) {
        return Some(true);
    }
    (known == PREFIX.len()).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::is_for_other;

    #[test]
    fn a_request_for_a_profile_is_told_from_others_as_soon_as_it_can_be() {
        for open in ["", "GET", "GET ", "GET /", "GET /debug/profile"] {
            assert_eq!(is_for_other(open.as_bytes()), None, "{open}");
        }
        for profile in ["GET /debug/profile/", "POST /debug/profile/cpu HTTP/1.1\r\n"] {
            assert_eq!(is_for_other(profile.as_bytes()), Some(false), "{profile}");
        }
        for other in ["GET / HTTP", "GET /api/stream", "GET /debug/x", "PUT /a"] {
            assert_eq!(is_for_other(other.as_bytes()), Some(true), "{other}");
        }
    }
}
