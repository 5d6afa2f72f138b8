//! kvorum's node: everything that touches sockets, disks, clocks and threads.

pub mod coordinator;
pub mod histogram;
pub mod http;
pub mod store;
