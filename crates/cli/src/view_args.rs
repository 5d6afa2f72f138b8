//! The command line of what is looked at while a cluster runs.

use std::ffi::OsString;

use clap::Args;

use crate::node_args::{AnyNodeArgs, EveryNodeArgs};
use crate::output::OutputArgs;

/// Show where a key is: its partition, and the nodes that hold it.
///
/// All nodes are listed, in the key's own order of preference. The first ones hold it; the others are next where a
/// request asks for a larger `--from`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kvorum where greeting\n  kvorum where user:7 --url 10.0.0.1:8080,10.0.0.2:8080 -o json"
)]
pub struct WhereArgs {
    /// 1 to 2,048 bytes.
    pub key: OsString,
    #[command(flatten)]
    pub form: OutputArgs,
    #[command(flatten)]
    pub server: AnyNodeArgs,
}

/// Show the slowest of what nodes answered lately, newest first: where the time went, and which replica was late.
///
/// Each node keeps the last requests that took longer than its setting `slow.threshold`. A key is shown as its hash:
/// `kvorum where KEY` has that of a key.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum slow --url 10.0.0.1:8080,10.0.0.2:8080,10.0.0.3:8080
  kvorum slow --limit 5 -o json              with the whole receipts")]
pub struct SlowArgs {
    /// Most requests.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    #[command(flatten)]
    pub form: OutputArgs,
    #[command(flatten)]
    pub server: EveryNodeArgs,
}

/// Show the keys and partitions that nodes are asked for most, at present.
///
/// Counts are of the last whole window, of the requests that the nodes in `--url` answered themselves: name all nodes to
/// see the cluster's. A key is shown as its hash to whom not all keys are open.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum hot --url 10.0.0.1:8080,10.0.0.2:8080,10.0.0.3:8080
  kvorum hot --limit 5 -o json")]
pub struct HotArgs {
    /// Most keys, and most partitions.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    #[command(flatten)]
    pub form: OutputArgs,
    #[command(flatten)]
    pub server: EveryNodeArgs,
}

/// Show the cluster live, once a second: what works, what each node does, how long requests take, and who is behind.
///
/// The other nodes are found through the first that answers. Rates and times are of the last second; times are those of
/// GETs and PUTs from the head of the request to that of the answer. Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum top
  kvorum top --once                     a second, and then the end
  kvorum top -o json > seconds.ndjson   an object a second")]
pub struct TopArgs {
    /// Print one second and end.
    #[arg(long)]
    pub once: bool,
    #[command(flatten)]
    pub form: OutputArgs,
    #[command(flatten)]
    pub server: EveryNodeArgs,
}
