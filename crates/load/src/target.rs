//! Where the load goes to.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use crate::Error;

/// `http://HOST[:PORT]`, with nothing behind it; or `HOST:PORT`.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
    /// The line of a request's head that shows whose it is. Never shown.
    authorization: String,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not http://HOST:PORT");
        let bare = Some(text).filter(|text| !text.contains('/') && text.contains(':'));
        let authority = text.strip_prefix("http://").or(bare).ok_or_else(wrong)?.trim_end_matches('/');
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (authority, 80),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        if host.is_empty() || !host.bytes().all(plain) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port, authorization: String::new() })
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

impl Target {
    /// The same target with a client's key, which goes with every request.
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        Self { authorization: format!("Authorization: Bearer {key}\r\n"), ..self }
    }

    /// The lines of a request's head that depend on the target alone.
    #[must_use]
    pub fn head_lines(&self) -> String {
        format!("Host: {}\r\n{}", self.authority(), self.authorization)
    }

    /// What goes into `Host`.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The addresses of its name, at least one. Asks the system's resolver, and blocks for it.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if it has none.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let unreachable = |cause| Error::Unreachable { target: self.to_string(), cause };
        let host = self.host.trim_matches(['[', ']']);
        let all: Vec<SocketAddr> = (host, self.port).to_socket_addrs().map_err(unreachable)?.collect();
        if all.is_empty() {
            return Err(unreachable(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn a_target_is_a_host_and_a_port() {
        for (text, authority) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("http://localhost/", "localhost:80"),
            ("http://[::1]:81", "[::1]:81"),
            ("http://[::1]", "[::1]:80"),
            ("localhost:8080", "localhost:8080"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().authority(), authority);
        }
        for bad in
            ["", "https://a", "http://", "http://a:b", "http://a b:1", "http://a:1/v0", "ftp://a:1", "a", "a:b", "a:1/"]
        {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
