//! Wall clocks of nodes that are wrong, by a library that is preloaded: `skew.c` says how.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::Cluster;

/// The clocks of a cluster's nodes.
pub struct Clocks(Vec<PathBuf>);

impl Clocks {
    /// Gives each node, before it starts, a clock that is right until it is [set](Clocks::set).
    pub fn prepare(cluster: &mut Cluster) -> Self {
        let library = cluster.root().join("skew.so");
        let compile = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
            .arg(&library)
            .arg("tests/process/support/skew.c")
            .output();
        assert!(compile.as_ref().is_ok_and(|output| output.status.success()), "{compile:?}");
        let file = |index: usize| cluster.root().join(format!("skew-{index}"));
        let clocks = Self((0..cluster.len()).map(file).collect());
        for (index, file) in clocks.0.iter().enumerate() {
            clocks.set(index, Duration::ZERO);
            cluster.set_variable(index, "LD_PRELOAD", &library.display().to_string());
            cluster.set_variable(index, "SKEW_FILE", &file.display().to_string());
        }
        clocks
    }

    /// Moves a node's wall clock to so much after the right time, at once.
    pub fn set(&self, index: usize, ahead: Duration) {
        use std::os::unix::fs::FileExt;
        let nanoseconds = i64::try_from(ahead.as_nanos()).expect("a skew is not centuries");
        let file = std::fs::File::options().create(true).truncate(false).write(true).open(&self.0[index]);
        file.and_then(|file| file.write_all_at(&nanoseconds.to_ne_bytes(), 0)).expect("the file can be written");
    }
}
