//! The command line: its description, and all commands that are no node themselves.
//!
//! Nothing of the server is in here: a change of the server compiles only the small program that joins both.

mod answer_text;
pub mod args;
mod batch;
mod bench;
mod client;
mod client_nodes;
pub mod console;
mod data_args;
mod dev;
mod documents;
mod entity;
mod every_node;
mod hot;
mod key_file;
mod keys;
mod node_args;
pub mod outcome;
pub mod output;
mod parent;
mod printable;
mod profile;
mod query;
mod receipt;
mod refusal;
mod repair;
mod scan;
mod scrub;
mod slow;
mod status;
mod top;
mod view_args;
mod where_is;

use std::path::Path;

use anyhow::Result;

pub use entity::order_json;

use args::{BackupArgs, Command, ConfigCommand, NodeArgs, RestoreArgs, ServeArgs};
use keys::args::{AuditCommand, SecretCommand};
use outcome::ExitOutcome;
use output::OutputForm;

/// The commands that take a node or its engine, which are not in this crate.
#[derive(Clone, Copy, Debug)]
pub struct NodeCommands {
    /// `kvorum serve`
    pub serve: fn(&ServeArgs) -> Result<ExitOutcome>,
    /// `kvorum backup`
    pub backup: fn(&BackupArgs) -> Result<ExitOutcome>,
    /// `kvorum restore`
    pub restore: fn(&RestoreArgs) -> Result<ExitOutcome>,
    /// `kvorum config check`
    pub check: fn(&Path, OutputForm) -> Result<ExitOutcome>,
    /// `kvorum config print`
    pub print: fn(&NodeArgs, OutputForm) -> Result<ExitOutcome>,
}

/// Runs a command to its end. `commit`: what this program was built of, for reports.
///
/// # Errors
/// What the command could not do.
pub fn run(command: &Command, node: &NodeCommands, commit: &str) -> Result<ExitOutcome> {
    match command {
        Command::Serve(args) => (node.serve)(args),
        Command::Dev(args) => dev::dev(args),
        Command::Console(args) => console::console(args),
        Command::Put(args) => entity::put(args),
        Command::Get(args) => entity::get(args),
        Command::Delete(args) => entity::delete(args),
        Command::Range(args) => entity::range(args),
        Command::Scan(args) => scan::scan(args),
        Command::Batch(args) => batch::batch(args),
        Command::Query(args) => query::query(args),
        Command::Script(args) => query::script(args),
        Command::Status(args) => status::status(args),
        Command::Top(args) => top::top(args),
        Command::Where(args) => where_is::where_is(args),
        Command::Slow(args) => slow::slow(args),
        Command::Hot(args) => hot::hot(args),
        Command::Repair(args) => repair::repair(args),
        Command::Scrub(args) => scrub::scrub(args),
        Command::Backup(args) => (node.backup)(args),
        Command::Restore(args) => (node.restore)(args),
        Command::Bench(command) => bench::bench(command, commit),
        Command::Profile(args) => profile::profile(args),
        Command::Config(ConfigCommand::Check { file, form }) => (node.check)(file, form.output),
        Command::Config(ConfigCommand::Print { node: args, form }) => (node.print)(args, form.output),
        Command::Key(command) => keys::key(command),
        Command::Auth(command) => keys::auth(command),
        Command::Secret(SecretCommand::New { file, form }) => keys::secret::new_secret(file, form.output),
        Command::Audit(AuditCommand::Verify { files, form }) => keys::secret::verify(files, form.output),
        Command::Completions { shell } => documents::completions(*shell),
        Command::Man { dir } => documents::man(dir.as_deref()),
    }
}
