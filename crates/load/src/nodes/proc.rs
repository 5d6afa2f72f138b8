//! `/proc`, of the processes that listen on an address of this machine.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use rustix::param::{clock_ticks_per_second, page_size};

use super::sample::Sample;
use crate::numbers::{count, float};

/// Its directory below `/proc`.
#[derive(Clone, Debug)]
pub(super) struct ProcDir(PathBuf);

/// The processes that have a listening socket of one of these addresses, or of all of the machine's, as far as this
/// user may look; a server that forks has several.
pub(super) fn listening_on(addresses: &[SocketAddr]) -> Vec<ProcDir> {
    let names: Vec<String> = addresses.iter().flat_map(names).collect();
    let sockets: Vec<PathBuf> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| inodes(&table, &names))
        .map(|inode| PathBuf::from(format!("socket:[{inode}]")))
        .collect();
    let has = |dir: &Path| {
        let files = fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| sockets.contains(&link))
    };
    // Not the links to some of them.
    let numbered = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().parse::<u32>().is_ok();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().filter(numbered);
    let dirs = entries.map(|entry| entry.path());
    dirs.filter(|dir| !sockets.is_empty() && has(dir)).map(ProcDir).collect()
}

/// How the kernel's tables name the sockets that may have a connection to this address: words of 32 bits as the
/// processor reads them.
fn names(address: &SocketAddr) -> impl Iterator<Item = String> {
    let ips = match address.ip() {
        IpAddr::V4(ip) => vec![hexadecimal(&ip.octets()), hexadecimal(&ip.to_ipv6_mapped().octets()), "0".repeat(8)],
        IpAddr::V6(ip) => vec![hexadecimal(&ip.octets())],
    };
    let port = address.port();
    ips.into_iter().chain(["0".repeat(32)]).map(move |ip| format!("{ip}:{port:04X}"))
}

fn hexadecimal(octets: &[u8]) -> String {
    let words = octets.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word));
    words.map(|word| format!("{word:08X}")).collect()
}

/// The inodes of the listening sockets of these names, from the kernel's table.
fn inodes(table: &str, names: &[String]) -> Vec<String> {
    const LISTENING: &str = "0A";
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        (names.iter().any(|name| name == local) && *state == LISTENING).then(|| (*inode).to_owned())
    };
    table.lines().skip(1).filter_map(of).collect()
}

/// The counts of all of them together; none if not one is left.
pub(super) fn sum(processes: &[ProcDir]) -> Option<Sample> {
    let add = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a + b);
    processes.iter().filter_map(ProcDir::sample).reduce(|a, b| Sample {
        cpu_seconds: a.cpu_seconds.zip(b.cpu_seconds).map(|(a, b)| a + b),
        resident_bytes: add(a.resident_bytes, b.resident_bytes),
        switches: add(a.switches, b.switches),
        disk_read_bytes: add(a.disk_read_bytes, b.disk_read_bytes),
        ..Sample::default()
    })
}

impl ProcDir {
    fn sample(&self) -> Option<Sample> {
        let read = |name: &str| fs::read_to_string(self.0.join(name)).ok();
        let stat = read("stat")?;
        // The name, in parentheses, may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |place: usize| fields.get(place)?.parse::<u64>().ok();
        let ticks = field(11)? + field(12)?;
        let pages = field(21)?;
        Some(Sample {
            cpu_seconds: Some(float(ticks) / float(clock_ticks_per_second())),
            resident_bytes: Some(pages * count(page_size())),
            switches: self.switches(),
            disk_read_bytes: read("io").and_then(|io| named(&io, "read_bytes")),
            ..Sample::default()
        })
    }

    /// Those that are there now.
    pub(super) fn threads(&self) -> impl Iterator<Item = i32> + use<> {
        let entries = fs::read_dir(self.0.join("task")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
    }

    /// Of all its threads that are still there.
    fn switches(&self) -> Option<u64> {
        let threads = fs::read_dir(self.0.join("task")).ok()?.flatten();
        let of = |thread: fs::DirEntry| {
            named(&fs::read_to_string(thread.path().join("status")).ok()?, "voluntary_ctxt_switches")
        };
        Some(threads.filter_map(of).sum())
    }
}

/// The number behind `name:`.
fn named(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::{inodes, listening_on, names, sum};

    #[test]
    fn a_listening_process_is_found_and_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Another address of this machine, where another process may have the same port.
        assert!(listening_on(&[([127, 0, 0, 2], address.port()).into()]).is_empty());
        let processes = listening_on(&[address]);
        assert_eq!(processes.len(), 1);
        assert_eq!(processes[0].0.file_name().unwrap().to_str().unwrap(), std::process::id().to_string());
        let sample = sum(&processes).unwrap();
        assert!(sample.cpu_seconds.is_some() && sample.resident_bytes.unwrap() > 1 << 20, "{sample:?}");
        assert!(sample.switches.is_some() && sample.disk_read_bytes.is_some(), "{sample:?}");
    }

    #[test]
    fn only_listening_sockets_of_the_address_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0\n\
            1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0 100 0\n\
            2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0\n\
            3: 0200007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 444 1 0 100 0\n\
            4: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 555 1 0 100 0\n";
        let of = |address: &str| inodes(table, &names(&address.parse().unwrap()).collect::<Vec<_>>());
        assert_eq!(of("127.0.0.1:8080"), ["111", "555"]);
        assert_eq!(of("127.0.0.3:8080"), ["555"]);
        let all: Vec<String> = names(&"[::1]:8080".parse().unwrap()).collect();
        assert_eq!(all, ["00000000000000000000000001000000:1F90", "00000000000000000000000000000000:1F90"]);
    }
}
