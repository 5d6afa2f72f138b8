//! What is sent: operations by shares, keys in an order, values.
//!
//! The presets are those of YCSB (Cooper and others, "Benchmarking cloud serving systems with YCSB", SoCC 2010).

mod batch;
mod distinct;
mod keys;
mod mix;
mod requests;
mod values;

pub use batch::{BATCH_MAX, BATCH_VALUE_BYTES_MAX};
pub(crate) use batch::{BatchedOperation, OperationBatch};
pub use keys::{KEYS_MAX, KeyOrder};
pub(crate) use keys::{KeySource, Keys};
pub use mix::{ClientOperation, Workload};
pub use requests::Api;
pub(crate) use requests::Requests;
pub use values::{VALUE_BYTES_MAX, ValueSize, bytes};
pub(crate) use values::{Values, Writer};
