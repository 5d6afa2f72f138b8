//! The command line of what has to do with stored values: one key, a range, many operations, work beside the data.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use kvorum_config::duration;

use crate::node_args::{AnyNodeArgs, OneNodeArgs};
use crate::output::{JsonOutputArgs, OutputArgs, OutputForm};

/// The nodes to ask, and how many replicas.
#[derive(Debug, Args)]
pub struct QuorumArgs {
    #[command(flatten)]
    pub server: AnyNodeArgs,
    /// How many replicas must answer; by default a majority of `--from`.
    #[arg(long, value_name = "A")]
    pub ack: Option<u8>,
    /// How many replicas hold a key; by default the cluster's `replication.from`.
    #[arg(long, value_name = "F")]
    pub from: Option<u8>,
}

impl QuorumArgs {
    /// The parameters that were given.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let numbers = [("ack", self.ack), ("from", self.from)];
        numbers.into_iter().filter_map(|(name, number)| Some((name, number?.to_string())))
    }
}

/// What a request for one key takes.
#[derive(Debug, Args)]
pub struct RequestArgs {
    #[command(flatten)]
    pub quorum: QuorumArgs,
    /// Print the receipt to stderr: each replica's outcome, version and time; and when the value ends, if it does.
    #[arg(long)]
    pub trace: bool,
    #[command(flatten)]
    pub form: OutputArgs,
}

/// Store a value.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum put greeting 'hello'
  kvorum put photo @cat.jpg
  date | kvorum put now -
  kvorum put greeting 'hello' --ack 3 --trace
  kvorum put session:7 'alice' --ttl 30m
  kvorum put nothing ''                 an empty value

A value that begins with @ goes through stdin: printf '@home' | kvorum put place -")]
pub struct PutArgs {
    /// 1 to 2,048 bytes.
    pub key: OsString,
    /// The value itself, `-` for stdin, or `@FILE`. Without it, stdin, unless that is a terminal.
    pub value: Option<OsString>,
    /// For how long the value lives, in whole seconds up to ten years; without end by default.
    #[arg(long, value_name = "DURATION", value_parser = ttl_s)]
    pub ttl: Option<u64>,
    #[command(flatten)]
    pub request: RequestArgs,
}

/// What `get` and `delete` take.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// 1 to 2,048 bytes.
    pub key: OsString,
    #[command(flatten)]
    pub request: RequestArgs,
}

/// Print the records that one node holds, sorted by key: the key, a tab, the value, a newline. Control characters of
/// keys are escaped.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kvorum range user:              from there on\n  kvorum range a b                from a to before b"
)]
pub struct RangeArgs {
    /// The first key.
    pub start: OsString,
    /// The first key that is left out.
    pub end: Option<OsString>,
    #[command(flatten)]
    pub form: OutputArgs,
    #[command(flatten)]
    pub server: OneNodeArgs,
}

/// Print every key of a range that the cluster holds, once, in the order of their bytes.
///
/// It is no snapshot: each record is as `get` would have printed it at some moment meanwhile. Where the connection breaks
/// or replicas are missing, it goes on behind what was printed, until eight attempts in a row have brought nothing. What a
/// node sent is checked against the number and the digest at the end of its answer; if it does not fit, the exit code is
/// 4, and what was printed may be damaged. Records of a connection that broke have no such check. Exit code 3 if too few
/// replicas answer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum scan user:                         all keys that begin with user:
  kvorum scan --start a --end b             from a to before b
  kvorum scan --progress -o json > all.ndjson
  kvorum scan -o frames > all.frames        bytes as docs/reference/http.md has them

Text has a line for each record: key, value, and when it expires if it does, with tabs between; control characters and
bytes that are no text are escaped. JSON and frames have all bytes.")]
pub struct ScanArgs {
    /// What the keys begin with. Without it and without `--start`: all keys.
    #[arg(conflicts_with_all = ["start", "end"])]
    pub prefix: Option<OsString>,
    /// The first key.
    #[arg(long, value_name = "KEY")]
    pub start: Option<OsString>,
    /// The first key that is left out.
    #[arg(long, value_name = "KEY", requires = "start")]
    pub end: Option<OsString>,
    /// Most records; if there are more, stderr says how to go on.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Where an earlier scan of the same range, `--ack` and `--from` said to go on.
    #[arg(long, value_name = "TOKEN")]
    pub after: Option<String>,
    /// Leave the values out.
    #[arg(long)]
    pub keys_only: bool,
    /// How records are printed.
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    pub output: ScanOutput,
    /// Leave partitions out that too few replicas answer for, and name them on stderr.
    #[arg(long)]
    pub partial: bool,
    /// Show on stderr how far it is, if that is a terminal.
    #[arg(long)]
    pub progress: bool,
    #[command(flatten)]
    pub quorum: QuorumArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ScanOutput {
    Text,
    Json,
    Frames,
}

impl ScanOutput {
    /// Of what is said beside the records.
    pub(crate) fn form(self) -> OutputForm {
        match self {
            Self::Text | Self::Frames => OutputForm::Text,
            Self::Json => OutputForm::Json,
        }
    }
}

/// Carry out many operations: one JSON object a line in, one answer a line out.
///
/// Each is answered as if it had been sent alone; they are in no order, and no two are a transaction. More than 1,000
/// lines are sent in parts, one after the other; within a part no key may come twice. `--ack` and `--from` are for
/// operations that do not say. Exit code 3 if an operation was answered 504.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum batch operations.ndjson
  echo '{\"op\":\"put\",\"key\":\"a\",\"value\":\"text\",\"ttl\":3600}' | kvorum batch -
  kvorum batch operations.ndjson -o text      status, key, and what came of it

Operations: {\"op\":\"put\",\"key\":\"a\",\"value\":\"text\"}, {\"op\":\"get\",\"key\":\"a\"}, {\"op\":\"delete\",\"key\":\"a\"}
Members: key or key_base64, value or value_base64, ttl (seconds), content_type, ack, from.")]
pub struct BatchArgs {
    /// The file, or `-` for stdin. Without it, stdin, unless that is a terminal.
    pub file: Option<OsString>,
    #[command(flatten)]
    pub form: JsonOutputArgs,
    #[command(flatten)]
    pub quorum: QuorumArgs,
}

/// How a query or a script is carried out.
#[derive(Debug, Args)]
pub struct WorkArgs {
    /// Go on without partitions of which too few replicas answer; `missing` in the answer names them.
    #[arg(long)]
    pub partial: bool,
    #[command(flatten)]
    pub form: JsonOutputArgs,
    #[command(flatten)]
    pub quorum: QuorumArgs,
}

/// Count and sum what a range of the cluster's keys holds, where it is.
///
/// The query is JSON. The answer is one JSON object, which comes when it is whole: a long range needs a longer
/// `--timeout`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum query open-orders.json
  kvorum query open-orders.json -o text       a table
  echo '{\"prefix\":\"orders/\",\"where\":[{\"path\":\"/status\",\"op\":\"eq\",\"value\":\"open\"}],
         \"group_by\":{\"key_segment\":1},\"select\":{\"count\":{},\"sum\":{\"path\":\"/total\"}}}' | kvorum query -")]
pub struct QueryArgs {
    /// The file, or `-` for stdin. Without it, stdin, unless that is a terminal.
    pub file: Option<OsString>,
    #[command(flatten)]
    pub work: WorkArgs,
}

/// Have a script map a range of the cluster's keys, where they are.
///
/// The script is Luau: `map(key, value, meta)` may `emit(k, v)`; `combine(a, b)` and `finish(pairs)` are optional. Nodes
/// run scripts where `scripts.enabled` says so. The answer comes when it is whole: a long range needs a longer
/// `--timeout`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  kvorum script words.lua --prefix texts/")]
pub struct ScriptArgs {
    /// The file, or `-` for stdin.
    pub file: OsString,
    /// Keys that begin with this; '' for all.
    #[arg(long, required_unless_present = "start", conflicts_with_all = ["start", "end"])]
    pub prefix: Option<OsString>,
    /// The first key.
    #[arg(long)]
    pub start: Option<OsString>,
    /// The first key that is left out.
    #[arg(long, requires = "start")]
    pub end: Option<OsString>,
    #[command(flatten)]
    pub work: WorkArgs,
}

/// Seconds, from a duration.
fn ttl_s(text: &str) -> Result<u64, String> {
    let allowed = || "it takes a duration of whole seconds from 1s to 87600h, such as 90s or 12h".to_owned();
    let ttl = duration(text, Duration::from_secs(1), Duration::from_secs(315_360_000)).map_err(|_| allowed())?;
    if ttl.subsec_nanos() == 0 { Ok(ttl.as_secs()) } else { Err(allowed()) }
}
