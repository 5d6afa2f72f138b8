//! A key that is always written with one `from` is nowhere but at the first `from` of its preference list,
//! whatever `from` its readers use.

use std::rc::Rc;

use kvorum_core::layout::Layout;

use crate::history::key;
use crate::machine::Machine;

/// Looks at all disks for one key.
///
/// # Errors
/// A node that holds what it should not.
pub fn check(seed: u64, number: usize, from: u8, layout: &Layout, machines: &[Rc<Machine>]) -> Result<(), String> {
    let key = key(seed, number);
    let others = layout.preference_list(key.hash().partition()).iter().skip(usize::from(from));
    for node in others {
        if machines[node.0 as usize].disk().held(&key).is_some() {
            return Err(format!("copies: node {} holds key {number}, which has {from} replicas before it", node.0));
        }
    }
    Ok(())
}
