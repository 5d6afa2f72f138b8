//! The binary: subcommands, and nothing that another crate could own.
//!
//! `serve` runs a node, `dev` a cluster of them on this machine; `put`, `get`, `delete`, `range` and
//! `status` are clients; `repair`, `scrub`, `backup` and `restore` look after the data; `bench` loads
//! it, and `profile` shows what a node does meanwhile. Exit codes are part of the
//! interface: see [`outcome::ExitOutcome`].

mod args;
mod backup;
mod bench;
mod client;
mod dev;
mod documents;
mod entity;
mod outcome;
mod profile;
mod repair;
mod scrub;
mod serve;
mod status;
mod version;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, ConfigCommand};
use outcome::ExitOutcome;

/// One allocator for Rust and RocksDB, with heap profiles asleep in it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let Some(command) = cli.command else {
        return version::version(cli.verbose).unwrap_or_else(ExitOutcome::of_error).into();
    };
    let outcome = match command {
        Command::Serve(args) => serve::serve(&args),
        Command::Dev(args) => dev::dev(&args),
        Command::Put(args) => entity::put(&args),
        Command::Get(args) => entity::get(&args),
        Command::Delete(args) => entity::delete(&args),
        Command::Range(args) => entity::range(&args),
        Command::Status(args) => status::status(&args),
        Command::Repair(args) => repair::repair(&args),
        Command::Scrub(args) => scrub::scrub(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Bench(command) => bench::bench(&command),
        Command::Profile(args) => profile::profile(&args),
        Command::Config(ConfigCommand::Check { file }) => serve::check(&file),
        Command::Config(ConfigCommand::Print(args)) => serve::print(&args),
        Command::Completions { shell } => documents::completions(shell),
        Command::Man { dir } => documents::man(dir.as_deref()),
    };
    outcome.unwrap_or_else(ExitOutcome::of_error).into()
}
