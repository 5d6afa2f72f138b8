//! No acknowledged write is lost: each replica that accepted it holds it or something newer, durably.

use std::rc::Rc;

use kvorum_core::layout::Layout;
use kvorum_core::quorum::majority;
use kvorum_storage::Store;

use crate::history::{ClientOutcome, History, RecordedOperation, key};
use crate::machine::Machine;

/// Looks at all disks at the end.
///
/// # Errors
/// The first write that too few replicas hold.
pub fn check(seed: u64, layout: &Layout, machines: &[Rc<Machine>], history: &History) -> Result<(), String> {
    history.operations.iter().try_for_each(|operation| check_one(seed, layout, machines, operation))
}

fn check_one(
    seed: u64,
    layout: &Layout,
    machines: &[Rc<Machine>],
    operation: &RecordedOperation,
) -> Result<(), String> {
    let ClientOutcome::Written(version) = operation.outcome else { return Ok(()) };
    let key = key(seed, operation.key);
    let (ack, from) = (operation.quorum.required(), operation.quorum.replicas());
    // One that was overwritten at once by others may be at less than a majority: at too few for it never to overlap
    // theirs.
    let needed = if operation.quorum.is_quorum() { from - majority(from) + 1 } else { ack };
    let replicas = layout.preference_list(key.hash().partition()).iter().take(usize::from(from));
    let holders = replicas.filter(|node| {
        let machine = &machines[node.0 as usize];
        // What was on a disk that is gone is not the node's to answer for.
        // Nor is a deletion that was dropped: the GC watermark stands for it.
        let gc_watermark = machine.disk().gc_watermarks().get(key.hash().partition());
        machine.has_lost.get()
            || gc_watermark >= version
            || machine.disk().held(&key).is_some_and(|held| held.version() >= version)
    });
    let holders = holders.count();
    if holders >= usize::from(needed) {
        return Ok(());
    }
    Err(format!("acknowledged: {holders} replicas hold what {needed} accepted of key {}: {operation}", operation.key))
}
