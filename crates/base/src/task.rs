//! Tasks whose code belongs to the crate that writes them.

use std::pin::Pin;

/// Work that another crate runs to its end. Boxed, because the code of an `async fn` is compiled in every crate that
/// polls it: each change of one would compile all of this again.
pub type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;
