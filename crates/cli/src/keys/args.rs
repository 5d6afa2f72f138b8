//! The command line of what has to do with keys and secrets.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use kvorum_config::duration;

use crate::output::OutputArgs;

/// Keys of clients, in a file that nodes read.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Add a key, and print it: this once, since the file has only its digest.
    #[command(
        after_help = "Example:\n  kvorum key new billing-api --role billing --file /etc/kvorum/keys.toml > billing.key"
    )]
    New {
        /// Whose key it is. Several keys may be one principal's.
        name: String,
        /// A role of the file.
        #[arg(long)]
        role: String,
        /// The file of keys and roles.
        #[arg(long)]
        file: PathBuf,
        /// When it ends, such as 2027-06-01T00:00:00Z; by default never.
        #[arg(long, value_name = "TIME")]
        not_after: Option<jiff::Timestamp>,
        #[command(flatten)]
        form: OutputArgs,
    },
    /// List the keys, without what is secret of them.
    #[command(after_help = "Example:\n  kvorum key list --file /etc/kvorum/keys.toml")]
    List {
        /// The file of keys and roles.
        #[arg(long)]
        file: PathBuf,
        #[command(flatten)]
        form: OutputArgs,
    },
    /// Add a key for a name, print it, and have the others of that name end.
    #[command(
        after_help = "Example:\n  kvorum key rotate billing-api --overlap 24h --file /etc/kvorum/keys.toml > billing.key"
    )]
    Rotate {
        /// Whose keys.
        name: String,
        /// How long the others are still taken.
        #[arg(long, value_name = "DURATION", value_parser = overlap)]
        overlap: Duration,
        /// The file of keys and roles.
        #[arg(long)]
        file: PathBuf,
        #[command(flatten)]
        form: OutputArgs,
    },
    /// Remove a key: nodes refuse it within five seconds.
    #[command(after_help = "Example:\n  kvorum key revoke 3f9c0a1b2c4d --file /etc/kvorum/keys.toml")]
    Revoke {
        /// Its ID: the digits after `kvk_`.
        id: String,
        /// The file of keys and roles.
        #[arg(long)]
        file: PathBuf,
        #[command(flatten)]
        form: OutputArgs,
    },
}

/// What a file of keys and roles says.
#[derive(Debug, Subcommand)]
pub enum AuthCommand {
    /// Check a file as a node would.
    #[command(after_help = "Example:\n  kvorum auth check /etc/kvorum/keys.toml")]
    Check {
        /// The file of keys and roles.
        file: PathBuf,
        #[command(flatten)]
        form: OutputArgs,
    },
    /// Say whether a key may do something, and by which grant. Exit code 1 if not.
    #[command(
        after_help = "Example:\n  kvorum auth explain /etc/kvorum/keys.toml --key 3f9c0a1b2c4d --method PUT --id billing/7"
    )]
    Explain {
        /// The file of keys and roles.
        file: PathBuf,
        /// The ID of the key: the digits after `kvk_`.
        #[arg(long)]
        key: String,
        /// GET, PUT or DELETE.
        #[arg(long)]
        method: String,
        /// The key of the store.
        #[arg(long)]
        id: OsString,
        #[command(flatten)]
        form: OutputArgs,
    },
}

/// The secret by which nodes know each other.
#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Write a new secret into a new file, which only its owner may read: the same file goes to every node.
    #[command(after_help = "Example:\n  kvorum secret new /etc/kvorum/peers.secret")]
    New {
        /// The file; must not exist.
        file: PathBuf,
        #[command(flatten)]
        form: OutputArgs,
    },
}

/// What nodes have written down of refusals and orders.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Check that each line follows the one before it. Exit code 1 if not.
    #[command(after_help = "Example:\n  kvorum audit verify /var/log/kvorum/audit.1 /var/log/kvorum/audit")]
    Verify {
        /// The files, the oldest first.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        form: OutputArgs,
    },
}

/// From nothing to ten years.
fn overlap(text: &str) -> Result<Duration, String> {
    duration(text, Duration::ZERO, Duration::from_secs(10 * 366 * 24 * 3600))
}
