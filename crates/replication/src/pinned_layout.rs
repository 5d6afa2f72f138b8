//! The layout that a shard uses.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use kvorum_core::layout::Layout;

/// The layout that a request began with. It keeps it to its end: ranks mean the same all the time.
#[derive(Clone)]
#[expect(clippy::redundant_allocation, reason = "counted on this shard alone: shared, it would be two cache misses")]
pub struct PinnedLayout(Rc<Arc<Layout>>);

impl Deref for PinnedLayout {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        &self.0
    }
}

/// The layout that a shard's new requests begin with.
pub struct ShardLayout(RefCell<PinnedLayout>);

impl ShardLayout {
    /// This one, until there is another.
    #[must_use]
    pub fn new(layout: Arc<Layout>) -> Rc<Self> {
        Rc::new(Self(RefCell::new(PinnedLayout(Rc::new(layout)))))
    }

    /// The layout of now.
    #[must_use]
    pub fn pin(&self) -> PinnedLayout {
        self.0.borrow().clone()
    }

    /// New requests begin with this one from now on.
    pub fn set(&self, layout: Arc<Layout>) {
        self.0.replace(PinnedLayout(Rc::new(layout)));
    }
}
