//! Where values come from: flags, environment, file, defaults; and what can be wrong with them.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::Value;

use super::model::Config;
use super::settings::{SETTINGS, Setting};
use super::values::Address;

/// Variables that begin like settings and are the command line's own.
const NOT_SETTINGS: [&str; 3] = ["KVORUM_URL", "KVORUM_CONFIG", "KVORUM_KEY_FILE"];

/// What was given to the program, unread.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Names of settings and their values from the command line.
    pub flags: Vec<(&'static str, String)>,
    /// The environment. Only `KVORUM_*` is looked at.
    pub environment: Vec<(String, String)>,
    /// The TOML file.
    pub file: Option<PathBuf>,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// The table of settings.
    Default,
    /// The TOML file of this path.
    File(PathBuf),
    /// The environment variable of this name.
    Environment(String),
    /// The command line.
    Flag(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "env {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingProblem {
    /// The file cannot be read or is not TOML.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No setting has this name.
    #[error("unknown setting `{name}` ({origin}): did you mean `{nearest}`?")]
    Unknown {
        /// As it was given.
        name: String,
        /// Where that was set.
        origin: SettingOrigin,
        /// The known name that looks most like it.
        nearest: String,
    },
    /// A value that its setting does not allow.
    #[error("{name} = \"{value}\" ({origin}) is not allowed: it takes {allowed}")]
    Value {
        /// The setting.
        name: &'static str,
        /// As it was given.
        value: String,
        /// Where that was set.
        origin: SettingOrigin,
        /// What it may be.
        allowed: String,
    },
    /// Settings that are allowed one by one and not together.
    #[error("{0}")]
    Disagree(String),
    /// This node is not among the nodes.
    #[error(
        "this node {node}, which is not in the cluster {cluster}: \
         add its URL to `cluster` on every node, or say with `advertise` which of these URLs it is"
    )]
    OwnUrl {
        /// What is known of this node.
        node: String,
        /// The URLs that it could have.
        cluster: String,
    },
    /// This node may be several of the nodes.
    #[error(
        "this node listens on {listen}, which fits several URLs of the cluster {cluster}: say with `advertise` which one it is"
    )]
    OwnUrlAmbiguous {
        /// Where it listens.
        listen: Address,
        /// The URLs that it could have.
        cluster: String,
    },
}

/// Everything that is wrong, at least one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// In the order in which they were found.
    pub problems: Vec<SettingProblem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(SettingProblem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

/// A setting's value and its origin.
#[derive(Clone, Debug)]
pub struct SettingEntry {
    /// The setting.
    pub name: &'static str,
    /// As the file would have it.
    pub value: String,
    /// Where it was set.
    pub origin: SettingOrigin,
}

impl fmt::Display for SettingEntry {
    /// A line of the file, with the origin as a comment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.parse::<u64>().is_ok() {
            write!(f, "{} = {}  # {}", self.name, self.value, self.origin)
        } else {
            write!(f, "{} = {}  # {}", self.name, Value::String(self.value.clone()), self.origin)
        }
    }
}

/// The settings in force, and where each came from.
#[derive(Clone, Debug)]
pub struct Effective {
    /// Checked and typed.
    pub config: Config,
    /// In the order of [`SETTINGS`].
    pub entries: Vec<SettingEntry>,
    /// Variables that Kubernetes sets in every pod for a service whose name begins with `kvorum`. Not settings.
    pub ignored: Vec<String>,
}

/// Reads all sources. Flags win over the environment, that over the file, that over the defaults.
///
/// # Errors
/// Everything that is wrong with any of them, and an own URL that is not in the cluster.
pub fn load(sources: &Sources) -> Result<Effective, ConfigError> {
    let (mut config, mut entries) = settle(sources)?;
    let of_services = |(name, _): &&(String, String)| is_of_a_service(name, &sources.environment);
    let ignored = sources.environment.iter().filter(of_services).map(|(name, _)| name.clone()).collect();
    config.find_own().map_err(|problem| ConfigError { problems: vec![problem] })?;
    for entry in entries.iter_mut().filter(|entry| entry.origin == SettingOrigin::Default) {
        match entry.name {
            "cluster" => entry.value = config.own.to_string(),
            "advertise" => entry.value = config.own.to_string(),
            "replication.from" => entry.value = config.quorum.replicas().to_string(),
            "coordinator.request_bytes_max" => entry.value = config.coordinator.request_bytes_max.to_string(),
            "limits.connections_per_address" => entry.value = config.connections_per_address().to_string(),
            "scan.memory_bytes" => entry.value = config.scan.memory_bytes.to_string(),
            "peer.queue_bytes_max" => entry.value = config.peer.queue_bytes_max.to_string(),
            "commit.queue_bytes_max" => entry.value = config.commit.queue_bytes_max.to_string(),
            "commit.recent_versions_max" => entry.value = config.commit.recent_versions_max.to_string(),
            "runtime.shards" => entry.value = config.runtime.shards.to_string(),
            _ => {}
        }
    }
    Ok(Effective { config, entries, ignored })
}

/// Checks a file by itself, and gives what it says. A file for all nodes says neither `listen` nor `advertise`: then this node
/// is not looked for in the cluster.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check_file(path: &Path) -> Result<Config, ConfigError> {
    let sources = Sources { file: Some(path.to_owned()), ..Sources::default() };
    let (mut config, entries) = settle(&sources)?;
    let says_who =
        |entry: &SettingEntry| matches!(entry.name, "listen" | "advertise") && entry.origin != SettingOrigin::Default;
    if entries.iter().any(says_who) {
        config.find_own().map_err(|problem| ConfigError { problems: vec![problem] })?;
    }
    Ok(config)
}

/// All values, from the weakest source to the strongest, each checked even where a stronger one hides it.
fn settle(sources: &Sources) -> Result<(Config, Vec<SettingEntry>), ConfigError> {
    let mut config = Config::blank();
    let mut problems = Vec::new();
    let mut given = Vec::new();
    if let Some(path) = &sources.file {
        read_file(path, &mut given, &mut problems);
    }
    read_environment(&sources.environment, &mut given, &mut problems);
    for (name, value) in &sources.flags {
        let origin = SettingOrigin::Flag(format!("--{}", name.replace('_', "-")));
        match setting(name) {
            Some(setting) => given.push((setting, value.clone(), origin)),
            None => problems.push(unknown(name, origin, SETTINGS.iter().map(|setting| setting.name.to_owned()))),
        }
    }
    let mut entries = Vec::with_capacity(SETTINGS.len());
    for setting in SETTINGS {
        (setting.set)(&mut config, setting.default).expect("a default is allowed, which a test checks");
        let mut entry =
            SettingEntry { name: setting.name, value: setting.default.to_owned(), origin: SettingOrigin::Default };
        for (_, value, origin) in given.iter().filter(|(of, ..)| of.name == setting.name) {
            entry = SettingEntry { name: setting.name, value: value.clone(), origin: origin.clone() };
            if let Err(allowed) = (setting.set)(&mut config, value) {
                let SettingEntry { name, value, origin } = entry.clone();
                problems.push(SettingProblem::Value { name, value, origin, allowed });
            }
        }
        entries.push(entry);
    }
    if problems.is_empty() {
        config.share_memory();
        problems = config.disagreements();
    }
    if problems.is_empty() { Ok((config, entries)) } else { Err(ConfigError { problems }) }
}

type GivenValue = Vec<(&'static Setting, String, SettingOrigin)>;

fn setting(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

fn read_environment(environment: &[(String, String)], given: &mut GivenValue, problems: &mut Vec<SettingProblem>) {
    let ours = |name: &str| name.starts_with("KVORUM_") && !NOT_SETTINGS.contains(&name);
    for (name, value) in environment.iter().filter(|(name, _)| ours(name)) {
        let origin = SettingOrigin::Environment(name.clone());
        match SETTINGS.iter().find(|setting| setting.variable() == *name) {
            Some(setting) => given.push((setting, value.clone(), origin)),
            None if is_of_a_service(name, environment) => {}
            None => problems.push(unknown(name, origin, SETTINGS.iter().map(Setting::variable))),
        }
    }
}

/// Whether the variable is one that Kubernetes sets in every pod for a service called `kvorum` or `kvorum-…`: its
/// host and ports, and what Docker's links were called. Source: the Kubernetes documentation, "Service", "Environment
/// variables". No name of a setting is of this form, which a test checks.
pub(super) fn is_of_a_service(name: &str, environment: &[(String, String)]) -> bool {
    let Some(rest) = name.strip_prefix("KVORUM_") else { return false };
    // `SERVICE_HOST`, `X_SERVICE_PORT_HTTP`, `PORT`, `PORT_80_TCP_ADDR`.
    if rest.ends_with("SERVICE_HOST") || rest.contains("SERVICE_PORT") || rest == "PORT" || rest.starts_with("PORT_") {
        return true;
    }
    // `X_PORT_80_TCP_ADDR`.
    let is_link = |link: &str| {
        let after = link.trim_start_matches(|letter: char| letter.is_ascii_digit());
        after.len() < link.len() && after.starts_with("_TCP")
    };
    if rest.split("_PORT_").skip(1).any(is_link) {
        return true;
    }
    // `X_PORT`: of any program, but for its host beside it.
    rest.strip_suffix("_PORT").is_some_and(|service| {
        let host = format!("KVORUM_{service}_SERVICE_HOST");
        environment.iter().any(|(name, _)| *name == host)
    })
}

fn read_file(path: &Path, given: &mut GivenValue, problems: &mut Vec<SettingProblem>) {
    let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let parsed =
        read.and_then(|text| text.parse::<toml::Table>().map_err(|error| error.to_string().trim_end().to_owned()));
    match parsed {
        Ok(table) => walk(path, "", &table, given, problems),
        Err(reason) => problems.push(SettingProblem::File { path: path.to_owned(), reason }),
    }
}

fn walk(path: &Path, prefix: &str, table: &toml::Table, given: &mut GivenValue, problems: &mut Vec<SettingProblem>) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let origin = SettingOrigin::File(path.to_owned());
        let section = SETTINGS.iter().any(|setting| setting.name.starts_with(&format!("{name}.")));
        match (setting(&name), value) {
            (Some(setting), value) => given.push((setting, text(value), origin)),
            (None, Value::Table(table)) if section || !table.is_empty() => walk(path, &name, table, given, problems),
            (None, _) => problems.push(unknown(&name, origin, SETTINGS.iter().map(|setting| setting.name.to_owned()))),
        }
    }
}

/// A value of the file as a flag would write it: lists and tables with commas.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        Value::Table(table) => {
            table.iter().map(|(key, value)| format!("{key}={}", text(value))).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

fn unknown(name: &str, origin: SettingOrigin, known: impl Iterator<Item = String>) -> SettingProblem {
    let distance = |known: &String| strsim::damerau_levenshtein(name, known);
    let nearest = known.min_by_key(distance).expect("there are settings");
    SettingProblem::Unknown { name: name.to_owned(), origin, nearest }
}
