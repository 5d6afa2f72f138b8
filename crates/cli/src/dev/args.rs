//! The command line of `kvorum dev`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::output::OutputArgs;

/// Run a cluster on this machine, in the foreground.
///
/// Each node is a process of its own with its data in a directory of its own; Ctrl-C stops them all.
/// Started again, the data is there. `KVORUM_*` variables reach the nodes. A node that dies is named, and the others
/// go on; the commands below give orders from a second terminal, in the same directory.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_value_name = "ORDER", subcommand_help_heading = "Orders")]
#[command(after_help = "\
Examples:
  kvorum dev
  kvorum dev --nodes 5 --base-port 9000 --data-dir /tmp/five
  kvorum dev kill 2                     in a second terminal
  kvorum dev start 2")]
pub struct DevArgs {
    #[command(flatten)]
    pub cluster: DevClusterArgs,
    /// `None` starts the cluster.
    #[command(subcommand)]
    pub order: Option<DevCommand>,
}

/// The cluster that is started.
#[derive(Debug, Args)]
pub struct DevClusterArgs {
    /// How many nodes.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=32))]
    pub nodes: u16,
    /// The first node's port; the others follow it.
    #[arg(long, value_name = "PORT", default_value_t = 8080, value_parser = clap::value_parser!(u16).range(1..=65_000))]
    pub base_port: u16,
    /// Holds one directory per node.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub data_dir: PathBuf,
    /// Have nodes prove a secret to each other and clients show a key; both are made below the data directory.
    #[arg(long)]
    pub secure: bool,
    /// Opens the nodes' admin listeners, for `kvorum profile`: the first one's port; the others follow it. The console
    /// has them opened 1000 above the nodes' ports, where those are free.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65_000))]
    pub admin_base_port: Option<u16>,
    /// Leave the console out: the pages in a browser that show the cluster, and have its nodes fail.
    #[arg(long)]
    pub no_console: bool,
}

#[derive(Debug, Subcommand)]
pub enum DevCommand {
    /// End a node at once, as a crash would (SIGKILL).
    #[command(after_help = "Example:\n  kvorum dev kill 2")]
    Kill(DevNodeArgs),
    /// Have a node stand still, connections open, as one that hangs (SIGSTOP).
    #[command(after_help = "Example:\n  kvorum dev pause 2")]
    Pause(DevNodeArgs),
    /// Have a paused node go on.
    #[command(after_help = "Example:\n  kvorum dev resume 2")]
    Resume(DevNodeArgs),
    /// Start a node that has ended, with its data.
    #[command(after_help = "Example:\n  kvorum dev start 2")]
    Start(DevNodeArgs),
    /// Delay all that a node sends, to its peers and to clients.
    #[command(after_help = "Examples:\n  kvorum dev slow 2 200\n  kvorum dev slow 2 0      undoes it")]
    Slow {
        #[command(flatten)]
        node: DevNodeArgs,
        /// Milliseconds, up to 10,000; 0 undoes.
        #[arg(value_parser = clap::value_parser!(u32).range(..=10_000), default_value_t = 200)]
        ms: u32,
    },
    /// Move a node's wall clock.
    #[command(
        after_help = "Examples:\n  kvorum dev skew 2 -30      half a minute late\n  kvorum dev skew 2 0        undoes it"
    )]
    Skew {
        #[command(flatten)]
        node: DevNodeArgs,
        /// Seconds, from -3,600 to 3,600; 0 undoes.
        #[arg(value_parser = clap::value_parser!(i32).range(-3600..=3600), allow_negative_numbers = true)]
        seconds: i32,
    },
    /// Show the nodes, and what is wrong with them.
    #[command(after_help = "Example:\n  kvorum dev status -o json")]
    Status(DevTarget),
}

/// One of the nodes.
#[derive(Debug, Args)]
pub struct DevNodeArgs {
    /// Which, from 1 on.
    #[arg(value_name = "N")]
    pub number: u16,
    #[command(flatten)]
    pub target: DevTarget,
}

/// The cluster that takes the order.
#[derive(Debug, Args)]
pub struct DevTarget {
    /// That of the `kvorum dev` that runs.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub data_dir: PathBuf,
    #[command(flatten)]
    pub form: OutputArgs,
}

impl DevCommand {
    /// The line that says it to the running `kvorum dev`, and where that is.
    pub(crate) fn line(&self) -> (String, &DevTarget) {
        let of_node = |verb: &str, node: &DevNodeArgs| format!("{verb} {}", node.number);
        match self {
            Self::Kill(node) => (of_node("kill", node), &node.target),
            Self::Pause(node) => (of_node("pause", node), &node.target),
            Self::Resume(node) => (of_node("resume", node), &node.target),
            Self::Start(node) => (of_node("start", node), &node.target),
            Self::Slow { node, ms } => (format!("slow {} {ms}", node.number), &node.target),
            Self::Skew { node, seconds } => (format!("skew {} {seconds}", node.number), &node.target),
            Self::Status(target) => ("status".to_owned(), target),
        }
    }
}
