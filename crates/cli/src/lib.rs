//! The command line: its description, and all commands that are no node themselves.
//!
//! Nothing of the server is in here: a change of the server compiles only the small program that joins both.

pub mod args;
mod bench;
mod client;
mod dev;
mod documents;
mod entity;
pub mod outcome;
mod profile;
mod repair;
mod scrub;
mod status;

use anyhow::{Result, bail};

pub use entity::ask_json;

use args::Command;
use outcome::ExitOutcome;

/// Runs a command to its end. `commit`: what this program was built of, for reports.
///
/// # Errors
/// What the command could not do. So is a command that takes a node or its engine, which are not in this crate.
pub fn run(command: &Command, commit: &str) -> Result<ExitOutcome> {
    match command {
        Command::Dev(args) => dev::dev(args),
        Command::Put(args) => entity::put(args),
        Command::Get(args) => entity::get(args),
        Command::Delete(args) => entity::delete(args),
        Command::Range(args) => entity::range(args),
        Command::Status(args) => status::status(args),
        Command::Repair(args) => repair::repair(args),
        Command::Scrub(args) => scrub::scrub(args),
        Command::Bench(command) => bench::bench(command, commit),
        Command::Profile(args) => profile::profile(args),
        Command::Completions { shell } => documents::completions(*shell),
        Command::Man { dir } => documents::man(dir.as_deref()),
        Command::Serve(_) | Command::Backup(_) | Command::Restore(_) | Command::Config(_) => {
            bail!("this program has no node in it")
        }
    }
}
