//! The command line: the binary as a process, against no node or a canned one. What needs a real node is
//! in `tests/process`.

mod bench;
mod client;
mod config;
mod dev;
mod dev_lab;
mod dev_process;
mod failover;
mod help;
mod profile;
mod rocksdb;
mod support;
mod version;
