//! The command line of `kvorum bench`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum};
use kvorum_config::duration;
use kvorum_load::Error;
use kvorum_load::compare::Side;
use kvorum_load::fill::FILL_BATCH;
use kvorum_load::knee::Objective;
use kvorum_load::run::{Rate, RunPlan};
use kvorum_load::scenario::SCENARIOS;
use kvorum_load::target::Target;
use kvorum_load::workload::{Api, BATCH_MAX, KeyOrder, ValueSize, Workload, bytes};

use crate::key_file::{ClientKey, client_key};
use crate::parent::ParentArgs;

/// Load tests: drive a cluster, or any HTTP store, and report how it did.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    Run(RunArgs),
    Fill(FillArgs),
    Knee(KneeArgs),
    Soak(SoakArgs),
    Compare(CompareArgs),
    Scenario(ScenarioArgs),
}

impl BenchCommand {
    /// The options about a parent program, of commands that one may start.
    pub(super) fn parent(&self) -> Option<&ParentArgs> {
        match self {
            Self::Run(args) => Some(&args.load.parent),
            Self::Knee(args) => Some(&args.load.parent),
            Self::Soak(args) => Some(&args.load.parent),
            Self::Compare(args) => Some(&args.load.parent),
            Self::Fill(_) | Self::Scenario(_) => None,
        }
    }
}

/// Where requests go to, over what, and with which keys and values.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// The targets; connections go to them in turn.
    #[arg(
        long,
        value_name = "URL,URL,…",
        env = "KVORUM_URL",
        default_value = "http://127.0.0.1:8080",
        value_delimiter = ','
    )]
    pub url: Vec<Target>,
    /// The file with the client's key, where the servers want one.
    #[arg(long, value_name = "FILE", env = "KVORUM_KEY_FILE", value_parser = client_key)]
    pub key_file: Option<ClientKey>,
    /// Connections, over all targets and threads.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = up_to::<100_000>)]
    pub connections: usize,
    /// Threads of the generator; one drives some 150,000 requests a second.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = up_to::<100_000>)]
    pub threads: usize,
    /// Requests under way on one connection at most.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = up_to::<100_000>)]
    pub pipeline: usize,
    /// Different keys.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub keys: u64,
    /// 100, 4KiB, 50..150 (uniform) or exp:100 (exponential around it).
    #[arg(long, value_name = "BYTES", default_value = "100")]
    pub value_size: ValueSize,
    /// Values that compress to about a quarter; otherwise they do not compress.
    #[arg(long)]
    pub compressible: bool,
    /// How many replicas must answer; by default what the server does.
    #[arg(long, value_name = "A")]
    pub ack: Option<u8>,
    /// How many replicas hold the key; by default what the server does.
    #[arg(long, value_name = "F")]
    pub from: Option<u8>,
    /// Where the store keeps a key, for stores other than kvorum.
    #[arg(long, value_name = "PATH", default_value = "/v0/entity?id={key}")]
    pub path: Api,
    /// Limit of a request, from when it was sent; over it, it is counted as a timeout.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = at_least_a_moment)]
    pub timeout: Duration,
}

/// Where the load goes to, and in what shape.
#[derive(Debug, Args)]
pub struct LoadArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// put, get, delete, range, scan, mixed:put=50,get=50, or ycsb-a to ycsb-f.
    #[arg(long, default_value = WORKLOAD)]
    workload: Workload,
    /// How long to measure.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = at_least_a_moment)]
    duration: Duration,
    /// How long to load before the measured time, with the same load.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = any_time)]
    warmup: Duration,
    /// sequential, uniform, zipfian or latest; by default uniform, or what the workload is defined with.
    #[arg(long, value_name = "ORDER")]
    key_order: Option<KeyOrder>,
    /// Operations of a request. Over 1, each request is a batch, rates and latencies are of batches, and the workload
    /// has only get, put, insert and delete.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = up_to::<BATCH_MAX>)]
    batch: usize,
    /// How it says how far it is: in words, or as an object of JSON a line for programs.
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(super) progress: ProgressForm,
    #[command(flatten)]
    pub(super) parent: ParentArgs,
}

/// How progress is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    Text,
    Json,
}

const WORKLOAD: &str = "put";

impl TargetArgs {
    fn with_key(&self, target: Target) -> Target {
        match &self.key_file {
            Some(key) => target.with_key(key.text()),
            None => target,
        }
    }

    /// Writes, as fast as the target takes them, for a day.
    pub fn plan(&self) -> RunPlan {
        RunPlan {
            targets: self.url.iter().cloned().map(|target| self.with_key(target)).collect(),
            api: self.path.clone(),
            workload: WORKLOAD.parse().expect("a workload of its own"),
            key_order: None,
            first_key: 0,
            keys: self.keys,
            only_keys: None,
            value_size: self.value_size,
            compressible: self.compressible,
            ack: self.ack,
            from: self.from,
            rate: Rate::Max,
            connections: self.connections,
            threads: self.threads,
            pipeline: self.pipeline,
            batch: 1,
            duration: DAY,
            warmup: Duration::ZERO,
            grace: Duration::ZERO,
            timeout: self.timeout,
            operations_max: None,
            watch: true,
            // Others in each run: what the one before has read may be in caches.
            seed: RandomState::new().build_hasher().finish(),
        }
    }
}

impl LoadArgs {
    /// What these options ask for, at a rate.
    pub fn plan(&self, rate: Rate) -> RunPlan {
        RunPlan {
            workload: self.workload.clone(),
            key_order: self.key_order,
            batch: self.batch,
            rate,
            duration: self.duration,
            warmup: self.warmup,
            ..self.target.plan()
        }
    }
}

/// The options of live comparisons that were given on the command line, whatever they are.
#[derive(Debug)]
pub(crate) struct GivenOptions(Vec<String>);

impl FromArgMatches for GivenOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let load = LoadArgs::augment_args(Command::new("load"));
        let names = load.get_arguments().map(|argument| argument.get_id().as_str()).chain(["rate", "pairs"]);
        let given = names.filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine));
        Ok(Self(given.map(|name| format!("--{}", name.replace('_', "-"))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// It has no options of its own.
impl Args for GivenOptions {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl CompareArgs {
    /// Whether these sides can be compared, and need what was given.
    ///
    /// # Errors
    /// [`Error::Usage`] if one is saved and the other live, or with what they would ignore.
    pub fn check(&self) -> Result<(), Error> {
        let sides = [&self.a, &self.b];
        let live: Vec<&Side> = sides.into_iter().filter(|side| !matches!(side, Side::Saved(_))).collect();
        let all_saved = live.is_empty();
        if let [live] = live.as_slice() {
            return Err(Error::Usage(format!(
                "one side is saved and the other live, for `{live}` is no directory: save runs of both, or run both"
            )));
        }
        let any_command = sides.iter().any(|side| matches!(side, Side::Command(_)));
        let is_useless = |name: &&str| all_saved || *name == "--url" && !any_command;
        let useless: Vec<&str> = self.given.0.iter().map(String::as_str).filter(is_useless).collect();
        if useless.is_empty() {
            return Ok(());
        }
        let why = if all_saved { "saved runs are compared as they are" } else { "no side is a command" };
        Err(Error::Usage(format!("{} would be ignored: {why}", useless.join(", "))))
    }
}

/// Send requests at a constant rate, and report how long they took.
///
/// Open loop: a request is due at its time whether or not earlier ones were answered, and its latency runs from then.
/// With `--rate max` the loop is closed: each connection sends when it has its answer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum bench run --rate 10000 --workload put
  kvorum bench run --rate max --workload get --connections 256 --out report
  kvorum bench run --rate 500 --workload mixed:put=1,get=3 --batch 64
  kvorum bench run --rate 5000 --url http://127.0.0.1:8000 --path /kv/{key} --workload mixed:put=10,get=90

Exit codes: 0 done, however the target did; 1 interrupted before anything was measured; 2 usage; 4 the target could not be
reached at all.")]
pub struct RunArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// Requests a second, or max.
    #[arg(long, value_name = "N|max")]
    pub rate: Rate,
    /// Write run.json, latency.hdr and report.html there.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the detailed percentile spectrum.
    #[arg(long)]
    pub latency: bool,
}

/// Write keys, as fast as the target takes them, up to a size.
///
/// Its values are other ones than those of `run`. Interrupted, it goes on where it was when it is started again with
/// the same options. At the end a sample is read back and compared.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum bench fill --size 1.2GB
  kvorum bench fill --keys 200000 --value-size 100

Exit codes: 0 filled, 1 interrupted, 2 usage, 4 the target could not be reached, or does not keep what is written.")]
pub struct FillArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Bytes of values, instead of --keys: 1.2GB, 500MB, 4GiB.
    #[arg(long, value_name = "BYTES", value_parser = size, conflicts_with = "keys")]
    pub size: Option<u64>,
    /// Keys of a request; fewer of large values, and 1 where the target knows no batches.
    #[arg(long, value_name = "N", default_value_t = FILL_BATCH, value_parser = up_to::<BATCH_MAX>)]
    pub batch: usize,
}

/// Search for the knee: the highest constant rate that is sustained.
///
/// Doubles the rate up to 60 % of what a closed loop achieves, makes it a quarter more at a time until it is not
/// sustained, bisects, confirms at full --duration, and runs at half of it. Then closed loops over 1, 2, 4 …
/// connections show what bends the curve (Universal Scalability Law).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum bench knee --workload put --out knee
  kvorum bench knee --workload get --objective p99=5ms,p999=20ms --duration 60s
  kvorum bench knee --workload put --sustained 10m --out knee

Exit codes: 0 found; 1 none, none that is sustained where that was asked for, half of it missed the objective, or
interrupted; 2 usage; 4 the target could not be reached, or nothing succeeded.")]
pub struct KneeArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// Where the search begins; `max` is 1000.
    #[arg(long, value_name = "N|max", default_value = "max")]
    pub rate: Rate,
    /// What a rate must meet to count, besides 99 % of it being achieved without an error.
    #[arg(long, value_name = "P=TIME,…", default_value = "p99=50ms")]
    pub objective: Objective,
    /// Search also for the rate that holds for so long: p99 of every 10 s within the objective, and debt bounded.
    /// Probes have a fifth of that time.
    #[arg(long, value_name = "DURATION", value_parser = at_least_a_moment)]
    pub sustained: Option<Duration>,
    /// Write knee.json, report.html, and the runs at the knee, at half of it and at the sustained knee there.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Send requests at a constant rate for long, and judge: a verdict and a report.
///
/// Passed if at most 1 second in 100 is over the objective, there is no error, nothing is unsent, and the debt of the
/// nodes' stores is bounded. Each slow second is shown with what the nodes did then.
#[derive(Debug, Args)]
#[command(mut_arg("duration", |duration| duration.default_value("1h")))]
#[command(after_help = "\
Examples:
  kvorum bench soak --rate 3000 --duration 10m --value-size 1000 --keys 5000000 --out soak
  kvorum bench soak --rate 12000 --goodput 6000 --duration 5m --connections 512

Exit codes: 0 passed; 1 not passed, or interrupted; 2 usage; 4 the target could not be reached at all.")]
pub struct SoakArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// Requests a second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub rate: u64,
    /// What each second must meet.
    #[arg(long, value_name = "P=TIME,…", default_value = "p99=50ms")]
    pub objective: Objective,
    /// The rate is more than the target can do. Passed if every 10 s after the first 30 have at least 0.8 of so many
    /// successes a second, everything else is a 503, and their p99 is 50 ms at most. It takes 40 s at least.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub goodput: Option<u64>,
    /// Write run.json, latency.hdr and report.html there.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Compare two builds, configurations or saved runs.
///
/// A side is a directory of saved runs (what `run --out` wrote, or a directory of several such), the URLs of a
/// server, or a command that serves at --url while it runs. Live sides take turns, A B A B. A difference counts only
/// if it is none of chance (rank test, 5 % for all figures together) and at least 2 %.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum bench compare before after
  kvorum bench compare http://10.0.0.1:8080 http://10.0.1.1:8080 --rate 10000 --workload get
  kvorum bench compare 'old/kvorum dev --data-dir /tmp/a' 'new/kvorum dev --data-dir /tmp/b' --rate max --out pairs

Exit codes: 0 compared, whatever came of it; 1 interrupted; 2 usage; 4 a side was not reached or had no success.")]
pub struct CompareArgs {
    // Before all others: each field takes its values away.
    #[command(flatten)]
    given: GivenOptions,
    /// A directory, URLs, or a command.
    pub a: Side,
    /// The same.
    pub b: Side,
    #[command(flatten)]
    pub load: LoadArgs,
    /// Requests a second, or max; needed where the sides are live.
    #[arg(long, value_name = "N|max")]
    pub rate: Option<Rate>,
    /// Runs of each side; fewer than 8 prove nothing, 8 only what all of them show.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = up_to::<1_000>)]
    pub pairs: usize,
    /// Write compare.json there, and each run below `a` and `b`.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Repeat a published measurement with kvorum, end to end.
///
/// Starts the nodes, fills them, finds the PUT, GET and mixed knees, runs at them, at half of them and at the report's
/// rates, profiles the coordinator, counts how evenly data lies, and writes it all beside the published figures. The
/// nodes are processes of this binary on this machine, on free ports; they end with the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum bench scenario quorum
  kvorum bench scenario all --quick --out /tmp/reports
  kvorum bench scenario async-fanout --duration 30s --keys 5000000
  kvorum bench scenario all --render

Exit codes: 0 done; 1 a stage failed, or it was interrupted, and the report says which; 2 usage, or
a report cannot be read or written.")]
pub struct ScenarioArgs {
    /// Which one, or all of them in turn.
    #[arg(value_parser = PossibleValuesParser::new(SCENARIOS.iter().map(|scenario| scenario.name).chain(["all"])))]
    pub name: String,
    /// Little data and short runs: shows that it works, all five in five minutes on two cores. Replaces quick reports
    /// only.
    #[arg(long)]
    pub quick: bool,
    /// Measure nothing: write report.md, its plots, report.html and index.md anew from what was saved, such as after a
    /// change of findings.md.
    #[arg(long, conflicts_with_all = ["quick", "duration", "keys", "data_dir", "keep"])]
    pub render: bool,
    /// Of each run that decides: confirmations of searches, and pairs; by default 5s, with --quick 250ms. Probes and
    /// profiles follow from it. Runs at knees, at half of them and at the report's rates take as long as the report's.
    #[arg(long, value_name = "DURATION", value_parser = at_least_a_moment)]
    pub duration: Option<Duration>,
    /// Different keys, of 100 bytes each; by default 200000, with --quick 10000. Not of larger-than-memory.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub keys: Option<u64>,
    /// Reports go to a directory of their name there, and index.md beside them.
    #[arg(long, value_name = "DIR", default_value = "docs/reports")]
    pub out: PathBuf,
    /// Where the nodes keep their data while they run; a disk, not memory.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub data_dir: PathBuf,
    /// Keep that data.
    #[arg(long)]
    pub keep: bool,
}

fn size(text: &str) -> Result<u64, String> {
    bytes(text).ok_or_else(|| format!("`{text}` is not a size such as 1.2GB or 4GiB"))
}

fn up_to<const MAX: usize>(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX).contains(number));
    number.ok_or_else(|| format!("it takes a number from 1 to {MAX}"))
}

const DAY: Duration = Duration::from_secs(24 * 3600);

fn at_least_a_moment(text: &str) -> Result<Duration, String> {
    duration(text, Duration::from_millis(1), DAY).map_err(|allowed| format!("it takes {allowed}"))
}

fn any_time(text: &str) -> Result<Duration, String> {
    duration(text, Duration::ZERO, DAY).map_err(|allowed| format!("it takes {allowed}"))
}
