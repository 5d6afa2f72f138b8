//! `backup` and `restore`: one node's data, out of a running node and into a new directory.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use kvorum_engine_rocksdb::backup::{Scope, copy};
use serde_json::Value;

use crate::serve::effective;
use kvorum_cli::args::{BackupArgs, RestoreArgs};
use kvorum_cli::ask_json;
use kvorum_cli::outcome::ExitOutcome;

/// `kvorum backup`: has the node take one in its own directory, and moves it.
pub(crate) fn backup(args: &BackupArgs) -> Result<ExitOutcome> {
    if args.dir.try_exists().with_context(|| format!("cannot look at {}", args.dir.display()))? {
        bail!("{} exists: a backup is made into a new directory", args.dir.display());
    }
    let taken = match ask_json(&args.server, "POST", "/v0/backup")? {
        Ok(taken) => taken,
        Err(refused) => return Ok(refused),
    };
    let path = taken.get("path").and_then(Value::as_str).map(PathBuf::from);
    let path = path.context("the node does not say where the backup is")?;
    fetch(&path, &args.dir).with_context(|| {
        format!(
            "the backup is in {} on the machine of {}, and could not be moved from there",
            path.display(),
            args.server.url
        )
    })?;
    writeln!(io::stdout(), "{}", args.dir.display())?;
    Ok(ExitOutcome::Done)
}

/// Moves what the node has left; copies it where that is not one file system. Durable once it returns.
fn fetch(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => {
            copy(from, to)?;
            File::open(parent)?.sync_all()?;
            std::fs::remove_dir_all(from)?;
        }
        moved => {
            moved?;
            File::open(parent)?.sync_all()?;
        }
    }
    Ok(())
}

/// `kvorum restore`
pub(crate) fn restore(args: &RestoreArgs) -> Result<ExitOutcome> {
    let config = effective(&args.node)?.config;
    let scope = if args.whole_cluster { Scope::Cluster } else { Scope::Node };
    let label = kvorum_server::node::restore(&config, &args.backup, scope)?;
    let next = match scope {
        Scope::Node => "it stores and answers, and counts for no quorum until it has been rebuilt: see `kvorum status`",
        Scope::Cluster => "it votes once a majority of its peers has registered it: start all nodes",
    };
    writeln!(io::stdout(), "{} is restored into {}; {next}", label.node, config.data_dir.display())?;
    Ok(ExitOutcome::Done)
}
