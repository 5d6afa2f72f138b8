//! Scans of what this node holds, for repair, scrub and hints: they give way to the reads of requests.

use std::time::Duration;

use kvorum_base::blocking_pool::ReadPool;
use kvorum_base::cpu_share::{CpuShare, ThreadShare};

/// How long a scan waits at most for reads of requests.
pub(crate) const YIELDS_MAX: u32 = 100;
pub(crate) const YIELD: Duration = Duration::from_millis(1);
/// A scan has one of so many parts of the share (decision 0038).
const SCAN_PARTS: u32 = 4;

/// Runs scans on a pool of their own.
#[derive(Clone)]
pub struct BackgroundScan {
    requests: ReadPool,
    scans: ReadPool,
    cpu_share: CpuShare,
}

impl BackgroundScan {
    /// Scans on `scans`, behind the reads of requests on `requests`.
    #[must_use]
    pub fn new(requests: ReadPool, scans: ReadPool, cpu_share: CpuShare) -> Self {
        Self { requests, scans, cpu_share }
    }

    /// Runs a part of a scan, behind the reads of requests that wait for the disk, and rests for it while requests
    /// come, a quarter of the share; nothing if the node stops first. A part of several pages rests after each.
    pub async fn run<T: Send + 'static>(&self, part: impl FnOnce(&mut ThreadShare) -> T + Send + 'static) -> Option<T> {
        for _ in 0..YIELDS_MAX {
            if self.requests.depth() == 0 {
                break;
            }
            tokio::time::sleep(YIELD).await;
        }
        let share = self.cpu_share.clone();
        let part = move || {
            let mut work = share.begin_part(SCAN_PARTS);
            let result = part(&mut work);
            work.pause();
            result
        };
        self.scans.run(part).await
    }
}
