//! What a console is started with.

use std::path::PathBuf;
use std::sync::Arc;

/// A node that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleNode {
    /// As it is shown, such as `http://127.0.0.1:8080`.
    pub url: String,
    /// `HOST:PORT`, where it listens.
    pub address: String,
    /// The URL of its admin listener, where profiles are taken; none where that is not known.
    pub admin: Option<String>,
}

/// What a page may do. Each level may what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConsoleLevel {
    /// Look, and read keys.
    Read,
    /// Write and delete keys, start repair and scrub.
    Write,
    /// Take profiles, start load, break nodes.
    Lab,
}

impl ConsoleLevel {
    /// Its name on the command line and in answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Lab => "lab",
        }
    }
}

/// What the console is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleMode {
    /// `kvorum dev`
    Dev,
    /// `kvorum console`
    Console,
    /// The admin listener of a node.
    Admin,
}

impl ConsoleMode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Console => "console",
            Self::Admin => "admin",
        }
    }
}

/// Orders to the nodes of `kvorum dev`.
pub trait LabControl: Send + Sync {
    /// Carries out a line such as `kill 2`, and returns the answer, a line of JSON. May block for a moment.
    fn order(&self, line: &str) -> String;
}

/// Where the lab keeps its reports, and what it starts.
#[derive(Clone, Debug)]
pub struct LabJobs {
    /// Each job has a directory in it.
    pub dir: PathBuf,
    /// The program whose `bench` and `profile` are started.
    pub program: PathBuf,
    /// The file with the clients' key, for them.
    pub key_file: Option<PathBuf>,
}

/// What a console is started with.
#[derive(Clone)]
pub struct ConsoleSettings {
    /// The nodes, at least one.
    pub nodes: Vec<ConsoleNode>,
    /// The key that nodes are shown.
    pub key: Option<String>,
    /// What pages may do.
    pub level: ConsoleLevel,
    /// What it is a part of.
    pub mode: ConsoleMode,
    /// The orders to the nodes, where there can be any.
    pub lab: Option<Arc<dyn LabControl>>,
    /// Where jobs of the lab can be started.
    pub jobs: Option<LabJobs>,
    /// Where pages are read from instead of those that are built in.
    pub assets: Option<PathBuf>,
}
