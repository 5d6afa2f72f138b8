//! An epoch has one layout, on whichever node, and a node goes to newer ones only.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvorum_core::layout::Layout;
use kvorum_storage::data_dir::RunId;

use crate::machine::{Machine, Process};

/// The layouts of a run.
#[derive(Debug, Default)]
pub struct Layouts {
    /// By epoch.
    known: BTreeMap<u64, Arc<Layout>>,
    /// The newest of each machine, by its index, and of which run of its process.
    newest: BTreeMap<usize, (RunId, Arc<Layout>)>,
}

impl Layouts {
    /// Looks at what one machine knows at one moment.
    ///
    /// # Errors
    /// If it knows another layout of an epoch than some machine before, or has gone back.
    pub fn check(&mut self, machine: &Machine) -> Result<(), String> {
        let look = |process: &Process| (process.shard.membership.run().id, process.shard.membership.layout());
        let Some((run, layout)) = machine.with(look) else { return Ok(()) };
        // The next run may have another disk.
        let before = self.newest.insert(machine.index, (run, layout.clone())).filter(|(before, _)| *before == run);
        if before.as_ref().is_some_and(|(_, before)| Arc::ptr_eq(before, &layout)) {
            return Ok(());
        }
        if before.is_some_and(|(_, before)| before.epoch() >= layout.epoch()) {
            return Err(format!("one_layout: node {} goes back to epoch {}", machine.index, layout.epoch()));
        }
        let known = self.known.entry(layout.epoch()).or_insert_with(|| layout.clone());
        if *known != layout {
            return Err(format!("one_layout: node {} has another layout of epoch {}", machine.index, layout.epoch()));
        }
        Ok(())
    }

    /// How many there have been.
    #[must_use]
    pub fn count(&self) -> usize {
        self.known.len()
    }
}
