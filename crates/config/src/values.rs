//! The values of settings: their types, and how each is read from text.
//!
//! A parser's error is the description of what is allowed; the caller adds the setting's name and
//! where the value came from.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// One kibibyte.
pub(super) const KIB: u64 = 1 << 10;
/// One mebibyte.
pub(super) const MIB: u64 = 1 << 20;
/// One gibibyte.
pub(super) const GIB: u64 = 1 << 30;

const SIZE_UNITS: [(&str, u64); 5] = [("TiB", GIB << 10), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1)];
const TIME_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A number of bytes. Shown with the largest unit that divides it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub(super) u64);

impl ByteSize {
    /// The number, for lengths in memory.
    #[must_use]
    pub fn get(self) -> usize {
        usize::try_from(self.0).expect("sizes are checked against bounds that fit 64-bit machines")
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_in_units(f, self.0, &SIZE_UNITS)
    }
}

/// A count of at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(u32);

impl Count {
    /// The number.
    #[must_use]
    pub fn get(self) -> usize {
        self.0 as usize
    }

    pub(super) fn at_least_one(number: u32) -> Self {
        Self(number.max(1))
    }
}

impl Default for Count {
    fn default() -> Self {
        Self(1)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A part of a hundred, 0 to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percent(u8);

impl Percent {
    /// The number, 0 to 100.
    #[must_use]
    pub fn get(self) -> u8 {
        self.0
    }
}

/// When a write counts as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DurabilitySetting {
    /// Once `fdatasync` has returned: an ack survives the machine.
    #[default]
    Fsync,
    /// Once the operating system has it: an ack survives the process, not the machine.
    Os,
}

/// Which replicas a read asks first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFanout {
    /// The `ack` fastest replicas, the rest after a short delay.
    #[default]
    Hedged,
    /// All `from` replicas at once.
    All,
}

/// The shape of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The least important log line that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Only what needs an operator.
    Error,
    /// And what may soon.
    Warn,
    /// And the life of the node: started, peer connected, draining.
    #[default]
    Info,
    /// And what a developer asks for.
    Debug,
    /// Everything.
    Trace,
}

/// Where to listen: `HOST:PORT`, the host in lower case, an IPv6 address in brackets.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// A name, an IPv4 address or an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// 1 to 65535.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the host stands for every interface.
    pub(super) fn is_wildcard(&self) -> bool {
        matches!(self.host.as_str(), "0.0.0.0" | "[::]")
    }

    /// Whether the host stands for this machine itself: 127.0.0.0/8, `::1` or `localhost`.
    pub(super) fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host().parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// The same port on the loopback interface, where the host is a wildcard: what a client can connect to.
    pub(super) fn reachable(&self) -> Self {
        match self.host.as_str() {
            "0.0.0.0" => Self { host: "127.0.0.1".into(), port: self.port },
            "[::]" => Self { host: "[::1]".into(), port: self.port },
            _ => self.clone(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A node's URL, which is its name in the cluster: `http://HOST:PORT`, normalised.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeUrl {
    text: String,
    address: Address,
}

impl NodeUrl {
    /// The URL of a node at this address.
    pub(super) fn of(address: Address) -> Self {
        Self { text: format!("http://{address}"), address }
    }

    /// `http://HOST:PORT`, without a slash at the end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Where to connect.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl fmt::Display for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Who may read `/metrics` where there is a file of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsReaders {
    /// Whose role has the right.
    #[default]
    Granted,
    /// All.
    All,
}

/// Which requests for data the audit has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditedData {
    /// None.
    None,
    /// Those that were refused for want of a key, a right or room in a limit.
    #[default]
    Denied,
    /// And those that write.
    Writes,
    /// All.
    All,
}

/// The names of a node, by which browsers may find it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames {
    /// Whether the hosts of all nodes' URLs, `localhost` and all addresses are among them.
    pub auto: bool,
    /// In lower case, without ports.
    pub names: Vec<String>,
}

/// A place that fails as one: a rack, a room, a data centre. Its name, 1 to 64 letters, digits, `.`, `_`, `-`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zone(String);

impl Zone {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn show_in_units(f: &mut fmt::Formatter<'_>, number: u64, units: &[(&str, u64)]) -> fmt::Result {
    match units.iter().find(|(_, unit)| number >= *unit && number.is_multiple_of(*unit)) {
        Some((name, unit)) => write!(f, "{}{name}", number / unit),
        None => write!(f, "{number}"),
    }
}

/// A duration as settings write it: `250ms`, `5s`, `2m`.
struct Shown(Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_in_units(f, u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &TIME_UNITS)
    }
}

fn number_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, scale) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim_start()))?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

/// A size between two bounds, both allowed: `8MiB`, or a plain number of bytes.
pub(super) fn size(text: &str, min: u64, max: u64) -> Result<ByteSize, String> {
    let bytes = text.parse().ok().or_else(|| number_with_unit(text, &SIZE_UNITS));
    bytes.filter(|bytes| (min..=max).contains(bytes)).map(ByteSize).ok_or_else(|| {
        format!("a size from {} to {}, such as 8MiB, 1GiB or a number of bytes", ByteSize(min), ByteSize(max))
    })
}

/// A duration between two bounds, both allowed: `250ms`, `5s`, `2m`, `1h`.
///
/// # Errors
/// What is allowed.
pub fn duration(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let parsed = number_with_unit(text, &TIME_UNITS).map(Duration::from_millis);
    parsed
        .filter(|duration| (min..=max).contains(duration))
        .ok_or_else(|| format!("a duration from {} to {}, such as 250ms, 5s or 2m", Shown(min), Shown(max)))
}

/// A whole number between two bounds, both allowed.
pub(super) fn count(text: &str, min: u32, max: u32) -> Result<Count, String> {
    let parsed = text.parse::<u32>().ok().filter(|number| (min..=max).contains(number));
    parsed.map(Count).ok_or_else(|| format!("a whole number from {min} to {max}"))
}

/// A whole number from 0 to 100.
pub(super) fn percent(text: &str) -> Result<Percent, String> {
    let parsed = text.parse::<u8>().ok().filter(|number| *number <= 100);
    parsed.map(Percent).ok_or_else(|| "a whole number from 0 to 100".into())
}

/// One of a few words.
pub(super) fn choice<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("one of {}", names.join(", "))
    })
}

/// `HOST:PORT`.
pub(super) fn address(text: &str) -> Result<Address, String> {
    let allowed = || "HOST:PORT with a port from 1 to 65535, such as 127.0.0.1:8080, [::1]:8080 or 0.0.0.0:8080".into();
    let (host, port) = text.rsplit_once(':').ok_or_else(allowed)?;
    let port = port.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(allowed)?;
    let well_formed = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok()),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
        }
    };
    if well_formed { Ok(Address { host: host.to_ascii_lowercase(), port }) } else { Err(allowed()) }
}

/// `HOST:PORT` that only this machine can connect to.
pub(super) fn loopback(text: &str) -> Result<Address, String> {
    let allowed = || "127.0.0.1:PORT, [::1]:PORT or localhost:PORT: only this machine may connect there".to_owned();
    address(text).ok().filter(Address::is_loopback).ok_or_else(allowed)
}

/// `http://HOST:PORT`, a slash at the end forgiven, port 80 where none is given.
///
/// # Errors
/// What is allowed.
pub fn node_url(text: &str) -> Result<NodeUrl, String> {
    let parsed = text.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("http://"));
    let parsed = parsed.and_then(|(_, rest)| {
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        if has_port { address(rest).ok() } else { address(&format!("{rest}:80")).ok() }
    });
    parsed.map(NodeUrl::of).ok_or_else(|| "a URL http://HOST:PORT without a path, such as http://10.0.0.1:8080".into())
}

/// A comma-separated list of different URLs, sorted, possibly empty.
pub(super) fn cluster(text: &str, max: usize) -> Result<Vec<NodeUrl>, String> {
    let allowed =
        |why: String| format!("up to {max} different URLs, such as http://10.0.0.1:8080,http://10.0.0.2:8080 ({why})");
    let mut urls = Vec::new();
    for part in items(text) {
        urls.push(node_url(part).map_err(|_| allowed(format!("`{part}` is not one")))?);
    }
    urls.sort();
    if let Some(twice) = urls.windows(2).find_map(|pair| (pair.first() == pair.last()).then(|| pair.first()).flatten())
    {
        return Err(allowed(format!("{twice} is there twice")));
    }
    if urls.len() > max { Err(allowed(format!("these are {}", urls.len()))) } else { Ok(urls) }
}

/// A comma-separated list of `URL=VALUE`, possibly empty.
pub(super) fn by_node<T>(
    text: &str,
    allowed: &str,
    value: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<(NodeUrl, T)>, String> {
    let pair = |part: &str| {
        let (url, text) = part.rsplit_once('=')?;
        Some((node_url(url.trim()).ok()?, value(text.trim()).ok()?))
    };
    items(text).map(|part| pair(part).ok_or_else(|| format!("{allowed} (`{part}` is not one)"))).collect()
}

/// The name of a zone.
pub(super) fn zone(text: &str) -> Result<Zone, String> {
    let named = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    if named && (1..=64).contains(&text.len()) {
        Ok(Zone(text.to_owned()))
    } else {
        Err("1 to 64 letters, digits, `.`, `_` or `-`".into())
    }
}

/// A comma-separated list of host names and the word `auto`, not empty.
pub(super) fn host_names(text: &str) -> Result<HostNames, String> {
    let allowed = || "`auto`, host names without ports, or both: `auto,kvorum.example.com`".to_owned();
    let mut names = HostNames::default();
    for item in items(text) {
        let name = item.strip_suffix('.').unwrap_or(item);
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        match name {
            "auto" => names.auto = true,
            _ if is_name && !name.is_empty() => names.names.push(name.to_ascii_lowercase()),
            _ => return Err(allowed()),
        }
    }
    if names == HostNames::default() { Err(allowed()) } else { Ok(names) }
}

/// A comma-separated list of origins, possibly empty.
pub(super) fn origins(text: &str) -> Result<Vec<String>, String> {
    let allowed = || "a list of origins SCHEME://HOST[:PORT], such as https://console.example.com".to_owned();
    let origin = |item: &str| {
        let (scheme, rest) = item.split_once("://")?;
        let is_scheme = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        let is_authority = address(rest).is_ok() || (!rest.contains(':') && address(&format!("{rest}:80")).is_ok());
        (is_scheme && is_authority).then(|| item.to_ascii_lowercase())
    };
    items(text).map(|item| origin(item).ok_or_else(allowed)).collect()
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}
