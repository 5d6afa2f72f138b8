//! Control groups that hold a node to a limit of memory, version 1 or 2, where the machine allows it.
//!
//! A group is made for a node, beside all others, and removed when it is dropped, which is after its process has
//! ended. The kernel counts towards it what the process has and the pages of files that it brought into the cache.

use std::fs::{create_dir, read_to_string, remove_dir, write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bench::lines::warn;

/// For the kernel to let go of a group whose process has ended.
const REMOVE_DEADLINE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// Where the machine has its control groups of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    root: PathBuf,
    /// The file of a group that holds its limit.
    limit_file: &'static str,
}

/// A group with a limit.
#[derive(Debug)]
pub(super) struct MemoryGroup(PathBuf);

impl Hierarchy {
    /// That of this machine.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(super) fn find() -> Result<Self, String> {
        let mounts = read_to_string("/proc/mounts").map_err(|error| format!("/proc/mounts: {error}"))?;
        Self::of(&mounts)
    }

    /// Version 1 is one mount for each kind of limit; of version 2 there is one, which names its kinds in a file.
    fn of(mounts: &str) -> Result<Self, String> {
        let fields = |line: &str| -> Option<(PathBuf, String, String)> {
            let mut fields = line.split(' ').skip(1).map(str::to_owned);
            Some((fields.next()?.into(), fields.next()?, fields.next()?))
        };
        let hierarchy = |(root, kind, options): (PathBuf, String, String)| match kind.as_str() {
            "cgroup" if options.split(',').any(|option| option == "memory") => {
                Some(Self { root, limit_file: "memory.limit_in_bytes" })
            }
            "cgroup2" => {
                let kinds = read_to_string(root.join("cgroup.controllers")).ok()?;
                let limits = kinds.split_whitespace().any(|kind| kind == "memory");
                limits.then_some(Self { root, limit_file: "memory.max" })
            }
            _ => None,
        };
        let none = || "no control groups of memory are mounted (/proc/mounts)".to_owned();
        mounts.lines().filter_map(fields).find_map(hierarchy).ok_or_else(none)
    }

    /// Makes a group.
    ///
    /// # Errors
    /// Why it is not allowed, in words; then nothing is left of it.
    pub(super) fn group(&self, name: &str, limit_bytes: u64) -> Result<MemoryGroup, String> {
        // Version 2 gives to children what their parent passes on; where it does already, this may be refused.
        let _ = write(self.root.join("cgroup.subtree_control"), "+memory");
        let path = self.root.join(name);
        create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let group = MemoryGroup(path);
        group.set(self.limit_file, &limit_bytes.to_string())?;
        Ok(group)
    }
}

impl MemoryGroup {
    /// Takes a process in, with all its threads.
    pub(super) fn add(&self, process: u32) -> Result<(), String> {
        self.set("cgroup.procs", &process.to_string())
    }

    fn set(&self, file: &str, value: &str) -> Result<(), String> {
        let path = self.0.join(file);
        // A group of another kind than it seems would take any file: none may be made here.
        if !Path::is_file(&path) {
            return Err(format!("{} is not there", path.display()));
        }
        write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_DEADLINE;
        while let Err(error) = remove_dir(&self.0) {
            if Instant::now() > deadline {
                warn(format_args!("{} is left behind: {error}", self.0.display()));
                return;
            }
            sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Hierarchy;

    #[test]
    fn the_first_hierarchy_that_limits_memory_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().display();
        let first = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /c/cpu cgroup rw,cpu 0 0\n\
            cgroup /c/memory cgroup rw,relatime,memory 0 0\n";
        assert_eq!(Hierarchy::of(first).unwrap().limit_file, "memory.limit_in_bytes");
        let second = format!("none {root} cgroup2 rw 0 0\n");
        assert!(Hierarchy::of(&second).unwrap_err().starts_with("no control groups"), "it does not limit memory");
        std::fs::write(dir.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        let found = Hierarchy::of(&second).unwrap();
        assert_eq!((found.root.as_path(), found.limit_file), (dir.path(), "memory.max"));
        assert!(Hierarchy::of("").is_err());
    }

    #[test]
    fn a_group_that_is_not_allowed_is_told_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        // An ordinary directory: what the kernel would have put there is missing.
        let hierarchy = Hierarchy { root: dir.path().into(), limit_file: "memory.max" };
        let why = hierarchy.group("kvorum-test", 1 << 20).unwrap_err();
        assert!(why.ends_with("memory.max is not there"), "{why}");
        assert!(!dir.path().join("kvorum-test").exists());
        let nowhere = Hierarchy { root: dir.path().join("none"), limit_file: "memory.max" };
        assert!(nowhere.group("kvorum-test", 1 << 20).is_err());
    }
}
