//! Where a scenario is run.

use kvorum_load::scenario::MachineInfo;

/// This one.
pub(super) fn machine() -> MachineInfo {
    let (info, system) = (rustix::system::sysinfo(), rustix::system::uname());
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let machine = system.machine().to_string_lossy().into_owned();
    MachineInfo {
        processor: name.map_or(machine, |(_, name)| name.trim().to_owned()),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
        memory_bytes: info.totalram.saturating_mul(u64::from(info.mem_unit)),
        system: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
    }
}
