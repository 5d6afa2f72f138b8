//! Tasks that are compiled once: in the crate that has their code.

use std::pin::Pin;

/// Work that another crate runs to its end. Boxed, because an `async fn` is compiled in every crate that polls it: each
/// change of one of them would compile it again.
pub type BoxedTask<T = ()> = Pin<Box<dyn Future<Output = T>>>;
