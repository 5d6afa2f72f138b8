//! Where a scenario is run: the machine, and the commit that is checked out.

use std::process::{Command, Stdio};

use kvorum_load::scenario::Machine;

/// This one.
pub(super) fn machine() -> Machine {
    let (info, system) = (rustix::system::sysinfo(), rustix::system::uname());
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let machine = system.machine().to_string_lossy().into_owned();
    Machine {
        processor: name.map_or(machine, |(_, name)| name.trim().to_owned()),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
        memory_bytes: info.totalram.saturating_mul(u64::from(info.mem_unit)),
        system: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
    }
}

/// Of the current directory, which is that of the build if it was built there.
pub(super) fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=10", "HEAD"]) else { return "unknown".into() };
    match git(&["status", "--porcelain", "--untracked-files=no", "--", ":!docs/reports"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit} and changes"),
    }
}
