//! A small disk that can be filled. Needs root, to mount; where that is missing it prints so loudly.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const MEGABYTE: usize = 1024 * 1024;
/// What a mount is called, before the id of the process whose it is.
const NAME: &str = "kvorum-test-";

/// A tmpfs; unmounted when dropped, or by the next process that mounts one.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    pub fn mount(at: &Path, megabytes: usize) -> Option<Self> {
        unmount_leftovers();
        std::fs::create_dir_all(at).unwrap();
        let (size, name) = (format!("size={megabytes}m"), format!("{NAME}{}", std::process::id()));
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, &name]).arg(at).output();
        if mounted.as_ref().is_ok_and(|output| output.status.success()) {
            return Some(Self(at.to_owned()));
        }
        eprintln!("SKIPPED, NOTHING WAS SHOWN: a full disk needs root, to mount a small tmpfs: {mounted:?}");
        None
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes all the space that is left.
    pub fn fill(&self) {
        self.fill_but(0);
    }

    /// Takes all the space but `left` bytes.
    pub fn fill_but(&self, left: u64) {
        let mut file = File::options().create(true).append(true).open(self.ballast()).unwrap();
        for size in [MEGABYTE, 4_096, 512, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        let taken = file.metadata().unwrap().len();
        file.set_len(taken.saturating_sub(left)).unwrap();
    }

    pub fn free(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

fn unmount(at: &Path) {
    let _unmounted = Command::new("umount").arg("-l").arg(at).output();
}

/// What test processes have left that were killed.
fn unmount_leftovers() {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    for mount in mounts.lines() {
        let mut fields = mount.split(' ');
        let owner = fields.next().and_then(|name| name.strip_prefix(NAME));
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists())
            && let Some(at) = fields.next()
        {
            unmount(Path::new(at));
        }
    }
}
