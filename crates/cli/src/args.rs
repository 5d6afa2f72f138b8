//! The command line. Help, completions and man pages are all made from this description.

#![expect(missing_docs, reason = "what a comment says here, help says, and a group of arguments has none")]

use std::fmt::Write;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use kvorum_config::{NodeUrl, SETTINGS};

use crate::bench::args::BenchCommand;
use crate::console::ConsoleArgs;
use crate::data_args::{BatchArgs, KeyArgs, PutArgs, QueryArgs, RangeArgs, ScanArgs, ScriptArgs};
use crate::dev::args::DevArgs;
use crate::key_file::{ClientKey, client_key};
use crate::keys::args::{AuditCommand, AuthCommand, KeyCommand, SecretCommand};
use crate::node_args::{AnyNodeArgs, OneNodeArgs, one_url};
use crate::output::OutputArgs;
use crate::parent::ParentArgs;
use crate::view_args::{HotArgs, SlowArgs, TopArgs, WhereArgs};

const AFTER: &str = "\
Try it:
  kvorum dev                            three nodes on this machine
  kvorum put greeting 'hello'           store
  kvorum get greeting                   and read, through any node
  kvorum status                         which nodes are up
  kvorum top                            and what they do, live

Exit codes: 0 done, 1 not found, 2 usage, 3 not enough replicas, 4 unreachable or refused.";

/// A leaderless, sharded, replicated key-value store with an HTTP API.
///
/// Every node takes every request. A key lives on `from` nodes; a request is answered as soon as `ack`
/// of them have answered. With `ack` at a majority, which is the default, reads and writes of a key are
/// linearizable.
#[derive(Debug, Parser)]
#[command(name = "kvorum", version, after_help = AFTER)]
#[command(disable_version_flag = true, arg_required_else_help = true, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Print the version.
    #[arg(short = 'V', long)]
    pub version: bool,
    /// With `--version`: print the commit, the flags, RocksDB's version and the allocator as well.
    #[arg(long, requires = "version")]
    pub verbose: bool,
    /// `None` only with `--version`.
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Serve(ServeArgs),
    Dev(DevArgs),
    Console(ConsoleArgs),
    Put(PutArgs),
    /// Print a value: its bytes and nothing else.
    #[command(
        after_help = "Examples:\n  kvorum get greeting\n  kvorum get photo --from 3 --ack 1 > cat.jpg\n  kvorum get greeting -o json           with its version, type and end"
    )]
    Get(KeyArgs),
    /// Delete a key, also one that was never there.
    #[command(after_help = "Example:\n  kvorum delete greeting --trace")]
    Delete(KeyArgs),
    Range(RangeArgs),
    Scan(ScanArgs),
    Batch(BatchArgs),
    Query(QueryArgs),
    Script(ScriptArgs),
    /// Show the cluster as one node sees it: which nodes are up, and how the data is spread.
    #[command(
        after_help = "Examples:\n  kvorum status --url localhost:8081\n  kvorum status --url http://10.0.0.1:8080,http://10.0.0.2:8080      through the first that answers\n  kvorum status -o json"
    )]
    Status(StatusArgs),
    Top(TopArgs),
    Where(WhereArgs),
    Slow(SlowArgs),
    Hot(HotArgs),
    Repair(RepairArgs),
    Scrub(ScrubArgs),
    Backup(BackupArgs),
    Restore(RestoreArgs),
    #[command(subcommand)]
    Bench(Box<BenchCommand>),
    Profile(ProfileArgs),
    /// Make, list, rotate and revoke keys of clients.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Check a file of keys, or show what it allows.
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Make the secret of a cluster.
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Verify an audit.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Check or show the settings of a node.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the completions for a shell.
    #[command(after_help = "Example:\n  kvorum completions bash > ~/.local/share/bash-completion/completions/kvorum")]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write those of all subcommands.
    #[command(after_help = "Examples:\n  kvorum man | man -l -\n  kvorum man --dir ~/.local/share/man/man1")]
    Man {
        /// Write one page per subcommand there.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a file: its names, its values, and whether they agree.
    #[command(after_help = "Example:\n  kvorum config check kvorum.toml")]
    Check {
        /// The TOML file.
        file: PathBuf,
        #[command(flatten)]
        form: OutputArgs,
    },
    /// Print the settings in force, each with where it came from: a flag, a variable, the file, or the default.
    #[command(after_help = "The output is a valid file:\n  kvorum config print --listen 0.0.0.0:8080 > kvorum.toml")]
    Print {
        #[command(flatten)]
        node: NodeArgs,
        #[command(flatten)]
        form: OutputArgs,
    },
}

/// Run one node.
///
/// Settings come from the flags, then from `KVORUM_*` variables, then from the file, then from their defaults.
#[derive(Debug, Args)]
#[command(after_help = "\
Example, the second of three nodes:
  kvorum serve --listen 10.0.0.2:8080 --data-dir /var/lib/kvorum \\
    --cluster http://10.0.0.1:8080,http://10.0.0.2:8080,http://10.0.0.3:8080

`--help` lists all settings.", after_long_help = settings_help())]
pub struct ServeArgs {
    #[command(flatten)]
    pub node: NodeArgs,
    /// Listen beyond this machine although everything that reaches the port may do everything.
    #[arg(long)]
    pub insecure: bool,
    /// Stop when stdin ends: a parent that dies takes its nodes with it.
    #[arg(long, hide = true)]
    pub stop_on_stdin_eof: bool,
}

/// What `serve` and `config print` take.
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// Where clients and peers connect to.
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// The URLs of all nodes, the same on every node.
    #[arg(long, value_name = "URL,URL,…")]
    pub cluster: Option<String>,
    /// Where this node keeps what it stores.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// This node's own URL, if it does not follow from `--listen`.
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// A TOML file of settings.
    #[arg(long, value_name = "FILE", env = "KVORUM_CONFIG")]
    pub config: Option<PathBuf>,
}

/// What `status` takes.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub form: OutputArgs,
    #[command(flatten)]
    pub server: AnyNodeArgs,
}

/// Have the nodes compare what they hold, and give each other what is missing.
///
/// Nodes do so by themselves, every `repair.interval`. With `--wait` the exit code is 0 once all nodes took
/// part and nothing is left to differ, and 3 otherwise.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  kvorum repair --wait")]
pub struct RepairArgs {
    /// Wait for the end of the round, and say what it did.
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub form: OutputArgs,
    #[command(flatten)]
    pub server: AnyNodeArgs,
}

/// Verify every record that one node stores, and have the other replicas replace what is damaged.
///
/// A node does the same by itself, slowly (`scrub.rate`). Exit code 4 if something damaged could not be replaced.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  kvorum scrub --url http://10.0.0.2:8080")]
pub struct ScrubArgs {
    #[command(flatten)]
    pub form: OutputArgs,
    #[command(flatten)]
    pub server: OneNodeArgs,
}

/// Take a backup of a running node into a new directory, without stopping it.
///
/// Run it on the node's machine, as a user who may write to its data directory. Where DIR is on the same file
/// system, tables are hard links, and the backup costs no space until the node has rewritten them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum backup /var/backups/kvorum-monday --config /etc/kvorum.toml --url http://10.0.0.2:8080 --timeout 10m
  kvorum backup /media/disk/kvorum-monday --data-dir /var/lib/kvorum --copy")]
pub struct BackupArgs {
    /// Where to put it; must not exist.
    pub dir: PathBuf,
    /// The node's data directory, from where alone a backup is taken; by default that of its settings.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// The TOML file of the node's settings.
    #[arg(long, value_name = "FILE", env = "KVORUM_CONFIG")]
    pub config: Option<PathBuf>,
    /// Copy tables as well, so that the backup shares nothing with the node.
    #[arg(long)]
    pub copy: bool,
    #[command(flatten)]
    pub form: OutputArgs,
    #[command(flatten)]
    pub server: OneNodeArgs,
}

/// Make the data directory of a node from one of its backups.
///
/// Takes the settings that `serve` will be started with. The node then counts for no quorum until it has been
/// rebuilt from its replicas, which have what was acknowledged since.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  kvorum restore /var/backups/kvorum-monday --listen 10.0.0.2:8080 --data-dir /var/lib/kvorum \\
    --cluster http://10.0.0.1:8080,http://10.0.0.2:8080,http://10.0.0.3:8080")]
pub struct RestoreArgs {
    /// What `kvorum backup` made.
    pub backup: PathBuf,
    #[command(flatten)]
    pub node: NodeArgs,
    /// All nodes of the cluster are being restored, and what was acknowledged since their backups is given up:
    /// the node votes at once.
    #[arg(long)]
    pub whole_cluster: bool,
    #[command(flatten)]
    pub form: OutputArgs,
}

/// Show where a node's processor time, its allocations or its waiting go: a flame graph, and the twenty largest.
///
/// The node must have an admin listener: `admin.listen`, or `kvorum dev --admin-base-port`. It takes one profile at a
/// time. Writes KIND.collapsed, KIND.svg and KIND.md into DIR; Ctrl-C ends the node's profile as well.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples, with KVORUM_ADMIN_LISTEN=127.0.0.1:9080 set for the node:
  kvorum profile --url http://127.0.0.1:9080 --kind cpu --out before
  kvorum profile --url http://127.0.0.1:9080 --kind cpu --out after --diff before
Exit codes: 0 done; 2 usage, or a file that cannot be written; 4 the node was not reached, or refused.")]
pub struct ProfileArgs {
    /// The node's admin listener.
    #[arg(long, value_name = "URL", value_parser = one_url)]
    pub url: NodeUrl,
    /// The file with the client's key, where the node wants one.
    #[arg(long, value_name = "FILE", env = "KVORUM_KEY_FILE", value_parser = client_key)]
    pub key_file: Option<ClientKey>,
    /// Processor time, bytes allocated, or time spent waiting.
    #[arg(long)]
    pub kind: ProfileKind,
    /// How long: 1 to 120.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=120))]
    pub seconds: u32,
    /// Samples of each thread in a second of its processor time, 1 to 999; for `cpu`.
    #[arg(long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=999))]
    pub frequency: u32,
    /// Where the files go.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// An earlier profile, its DIR or its KIND.collapsed: also writes KIND.diff.svg, what has become more in red.
    #[arg(long, value_name = "OLD")]
    pub diff: Option<PathBuf>,
    #[command(flatten)]
    pub form: OutputArgs,
    #[command(flatten)]
    pub parent: ParentArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProfileKind {
    Cpu,
    Alloc,
    Lock,
}

fn settings_help() -> String {
    let mut help = String::from(
        "Settings, as a TOML file names them (as a variable: KVORUM_LIMITS_VALUE_BYTES_MAX for limits.value_bytes_max):\n",
    );
    for setting in SETTINGS {
        let default = if setting.default.is_empty() { "\"\"" } else { setting.default };
        write!(help, "\n  {} = {default}\n      {}\n", setting.name, setting.doc).expect("a string takes everything");
    }
    help.push_str("\nExample:\n  kvorum serve --listen 10.0.0.2:8080 --data-dir /var/lib/kvorum \\\n    --cluster http://10.0.0.1:8080,http://10.0.0.2:8080,http://10.0.0.3:8080\n");
    help
}
