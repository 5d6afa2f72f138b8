//! After a round of anti-entropy over everything, all replicas of a key are the same; and what lies at or below a
//! watermark never differs anywhere.

use std::rc::Rc;

use kvorum_core::Version;
use kvorum_core::layout::Layout;
use kvorum_storage::Store;

use crate::history::key;
use crate::machine::{Loss, Machine};

/// Looks for a replica that lacks what all have by a watermark. At any time.
///
/// # Errors
/// Which.
pub fn check_watermark(seed: u64, number: usize, layout: &Layout, machines: &[Rc<Machine>]) -> Result<(), String> {
    let key = key(seed, number);
    let partition = key.hash().partition();
    let gc_watermark = |machine: &Machine| machine.disk().gc_watermarks().get(partition);
    let proven = machines.iter().map(|machine| gc_watermark(machine)).max().unwrap_or(Version::ZERO);
    // What is not there any more because a disk was lost is not a round's to answer for, until it is rebuilt.
    let replicas = || layout.preference_list(partition).iter().map(|node| &machines[node.0 as usize]);
    for machine in replicas().filter(|machine| machine.loss.get() == Loss::None) {
        let Some(record) = machine.disk().held(&key).filter(|record| record.version() <= proven) else { continue };
        let others = replicas().take(usize::from(record.from())).filter(|other| other.loss.get() == Loss::None);
        for other in others {
            let held = other.disk().held(&key).map_or(Version::ZERO, |held| held.version());
            // A machine that is down has published nothing: what its GC watermarks are is on its disk.
            let watermark = if other.is_up() { gc_watermark(other) } else { proven };
            let may_drop = watermark >= record.version() && record.is_deleted(|| watermark.hlc.millis());
            let is_dropped = held == Version::ZERO && may_drop;
            if held < record.version() && !is_dropped {
                return Err(format!(
                    "converged: all agree up to {proven:?}, but node {} holds {:?} of key {number} and node {} {held:?}",
                    machine.index,
                    record.version(),
                    other.index
                ));
            }
        }
    }
    Ok(())
}

/// Whether the first `from` replicas of a key hold the same.
#[must_use]
pub fn is_converged(seed: u64, number: usize, from: u8, layout: &Layout, machines: &[Rc<Machine>]) -> bool {
    let key = key(seed, number);
    let replicas = layout.preference_list(key.hash().partition()).iter().take(usize::from(from));
    // A deletion, or what has ended, and its GC watermark are the same.
    let held = replicas.map(|node| {
        let disk = machines[node.0 as usize].disk();
        let clock_ms = || disk.gc_watermarks().get(key.hash().partition()).hlc.millis();
        disk.held(&key).filter(|held| !held.is_deleted(clock_ms)).map(|held| held.version())
    });
    let held: Vec<_> = held.collect();
    held.windows(2).all(|pair| pair[0] == pair[1])
}
