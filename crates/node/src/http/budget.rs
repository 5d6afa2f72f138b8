//! A shard's share of memory for values on their way in and out.
//!
//! Without it, slow clients times the largest value would be the node's memory. Values that fit the
//! buffers which every connection has anyway are not counted.

use std::cell::Cell;
use std::rc::Rc;

/// Values up to this are not worth counting.
const FREE_BYTES: usize = 16 * 1024;

/// How many bytes are held, and how many may be.
#[derive(Debug)]
pub(super) struct Budget {
    used: Cell<usize>,
    bytes_max: usize,
}

impl Budget {
    pub(super) fn new(bytes_max: usize) -> Rc<Self> {
        Rc::new(Self { used: Cell::new(0), bytes_max })
    }

    /// Bytes held now.
    pub(super) fn used(&self) -> usize {
        self.used.get()
    }

    /// Charges `bytes`, if there is room: nothing where they are few.
    ///
    /// # Errors
    /// There is no room.
    pub(super) fn charge(self: &Rc<Self>, bytes: usize) -> Result<Option<Charge>, NoRoom> {
        if bytes <= FREE_BYTES {
            return Ok(None);
        }
        let mut charge = Charge { budget: Rc::clone(self), bytes: 0 };
        charge.grow_to(bytes)?;
        Ok(Some(charge))
    }
}

/// The budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

/// Bytes charged, until it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Rc<Budget>,
    bytes: usize,
}

impl Charge {
    /// Charges what is missing to `bytes`.
    ///
    /// # Errors
    /// There is no room; what is charged stays.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let used = self.budget.used.get() + bytes.saturating_sub(self.bytes);
        if used > self.budget.bytes_max {
            return Err(NoRoom);
        }
        self.budget.used.set(used);
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get() - self.bytes);
    }
}
