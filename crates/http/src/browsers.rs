//! What a browser may do with a node: pure.
//!
//! A page of any web site can have the browser that shows it send requests to a node on that machine or
//! network. Two headers show where a request comes from, and no script can forge them:
//!
//! - `Host` is the name by which the browser found the node. A name that is not a node's own was made to point here, by
//!   DNS rebinding, so that the page counts as of the same origin.
//! - `Origin`, and `Sec-Fetch-Site` where that is absent, name or classify the page (the Fetch standard, 3.2; Fetch
//!   Metadata Request Headers).
//!
//! Programs send none of the last two, and name a node by its URL or address.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Which names a node has, and which pages may use it.
#[derive(Clone, Debug, Default)]
pub struct BrowserRules {
    /// The authority of the node's own URL, `HOST:PORT`: what nearly every request names.
    pub own: String,
    /// Further names, in lower case and without ports.
    pub hosts: Vec<String>,
    /// Whether any IP address is a name as well. None can be made to point elsewhere.
    pub addresses: bool,
    /// Origins whose pages may use the node, `SCHEME://HOST[:PORT]`, in lower case.
    pub origins: Vec<String>,
}

/// Which page sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrigin {
    /// None, but a program, or a page of the node itself.
    Own,
    /// One of an allowed origin: the answer has to show that.
    Allowed,
}

/// Why a request is refused for where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginRefusal {
    /// A page of another origin.
    #[error("the request comes from a page of another origin: `http.allowed_origins` names those that may")]
    Foreign,
    /// `Host` is no name of this node.
    #[error("`Host` is no name of this node: `http.allowed_hosts` has those that it has")]
    Misdirected,
}

/// The headers of a request that show where it comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct OriginHeaders<'a> {
    /// `Host`, or the authority of a target in absolute form, which overrides it (RFC 9112, 3.2.2).
    pub host: Option<&'a [u8]>,
    /// `Origin`
    pub origin: Option<&'a [u8]>,
    /// `Sec-Fetch-Site`
    pub site: Option<&'a [u8]>,
}

impl BrowserRules {
    /// Judges a request by its headers, before anything else of it is looked at.
    ///
    /// # Errors
    /// [`OriginRefusal`]
    pub fn judge(&self, headers: OriginHeaders<'_>) -> Result<RequestOrigin, OriginRefusal> {
        if let Some(host) = headers.host
            && host != self.own.as_bytes()
            && !self.is_own_name(host)
        {
            return Err(OriginRefusal::Misdirected);
        }
        if let Some(origin) = headers.origin {
            return if self.origins.iter().any(|allowed| origin.eq_ignore_ascii_case(allowed.as_bytes())) {
                Ok(RequestOrigin::Allowed)
            } else if headers.host.is_some_and(|host| authority_of(origin) == Some(host)) {
                Ok(RequestOrigin::Own)
            } else {
                Err(OriginRefusal::Foreign)
            };
        }
        match headers.site {
            Some(b"cross-site" | b"same-site") => Err(OriginRefusal::Foreign),
            _ => Ok(RequestOrigin::Own),
        }
    }

    fn is_own_name(&self, authority: &[u8]) -> bool {
        let Some(name) = std::str::from_utf8(authority).ok().and_then(name_of) else { return false };
        let (is_any, name) = match name {
            HostName::Address(address) => (self.addresses, address),
            HostName::Text(name) => (false, name),
        };
        is_any || self.hosts.iter().any(|known| known.trim_matches(['[', ']']).eq_ignore_ascii_case(name))
    }
}

/// The authority of an origin, which a page of the node itself shares with the `Host` of its requests. A proxy in front
/// may have made HTTP of HTTPS.
fn authority_of(origin: &[u8]) -> Option<&[u8]> {
    origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"))
}

/// What stands before the port of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostName<'a> {
    /// Without brackets.
    Address(&'a str),
    /// Without a dot at its end.
    Text(&'a str),
}

/// `None` for what is no authority.
fn name_of(authority: &str) -> Option<HostName<'_>> {
    let is_port = |text: &str| !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let is_end = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return (is_end && address.parse::<Ipv6Addr>().is_ok()).then_some(HostName::Address(address));
    }
    let host = match authority.split_once(':') {
        Some((host, port)) if is_port(port) => host,
        Some(_) => return None,
        None => authority,
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.is_empty() {
        return None;
    }
    Some(if host.parse::<Ipv4Addr>().is_ok() { HostName::Address(host) } else { HostName::Text(host) })
}

#[cfg(test)]
#[path = "tests/browsers.rs"]
mod tests;
