//! The binary: subcommands, and nothing that another crate could own.
//!
//! Here are those that take a node or its engine; all others are in `kvorum-cli`. Exit codes are part of the interface:
//! see [`ExitOutcome`].

mod backup;
mod parent;
mod serve;
mod version;

use std::process::ExitCode;

use clap::Parser;
use kvorum_cli::NodeCommands;
use kvorum_cli::args::Cli;
use kvorum_cli::outcome::ExitOutcome;

/// One allocator for Rust and RocksDB, with heap profiles asleep in it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // A node starts itself so, for a script. It comes before all else, and is no command of anybody's.
    if std::env::args_os().nth(1).is_some_and(|command| command == "script-worker") {
        return kvorum_script::worker_main();
    }
    let cli = Cli::parse();
    let Some(command) = cli.command else {
        return version::version(cli.verbose).unwrap_or_else(ExitOutcome::of_error).into();
    };
    let node = NodeCommands {
        serve: serve::serve,
        backup: backup::backup,
        restore: backup::restore,
        check: serve::check,
        print: serve::print,
    };
    let outcome = kvorum_cli::run(&command, &node, env!("KVORUM_COMMIT"));
    outcome.unwrap_or_else(ExitOutcome::of_error).into()
}
