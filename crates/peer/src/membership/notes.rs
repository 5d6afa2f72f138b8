//! What was received from the peers, written down now and then by a thread of its own.

use std::sync::PoisonError;

use kvorum_storage::data_dir::DataDirError;

use super::{Membership, NOTES_INTERVAL};

impl Membership {
    /// Has what was received from the peers written soon: when a connection ends, it is the last for a while.
    pub fn write_notes_now(&self) {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).write_now = true;
        self.task_set.notify_one();
    }

    /// Keeps what was received from the peers on disk, until [`Membership::stop_notes`]. For a thread of its own.
    pub fn write_notes(&self) {
        let mut is_failing = false;
        loop {
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.task_set.wait_timeout_while(task, NOTES_INTERVAL, |task| !task.write_now && !task.stop);
            let (task, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let stop = task.stop;
            drop(task);
            let written = self.write_notes_once();
            if let Err(error) = &written
                && !is_failing
            {
                tracing::warn!(%error, "cannot write the notes of peers");
            }
            is_failing = written.is_err();
            if stop {
                return;
            }
        }
    }

    /// Writes down what was received from the peers. Blocks on the disk.
    ///
    /// # Errors
    /// If it could not be made durable; the next call tries again.
    pub fn write_notes_once(&self) -> Result<(), DataDirError> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).write_now = false;
        self.data_dir.persist_peers()
    }

    /// Whether the notes are to be written soon.
    #[must_use]
    pub fn wants_notes(&self) -> bool {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).write_now
    }

    /// Ends [`Membership::write_notes`], once everything is written.
    pub fn stop_notes(&self) {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.task_set.notify_one();
    }
}
