//! `backup` and `restore`: one node's data, out of a running node and into a new directory.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use kvorum_engine_rocksdb::backup::{COPIED, Label, Scope, TableFiles, copy};
use kvorum_storage::data_dir::DataDir;
use rustix::fs::{CWD, Mode, OFlags, openat, renameat};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::serve::{effective, private_files};
use kvorum_cli::args::{BackupArgs, NodeArgs, RestoreArgs};
use kvorum_cli::order_json;
use kvorum_cli::outcome::ExitOutcome;
use kvorum_cli::output::show;

/// Longest label.
const LABEL_BYTES_MAX: u64 = 64 << 10;

/// `kvorum backup`: has the node take one in its own directory, and moves it.
///
/// What answers at the URL is not trusted: it names no path that is used. Only what lies in the node's data directory
/// under the one name is moved, if it is of this directory's cluster and what the answer describes.
pub(crate) fn backup(args: &BackupArgs) -> Result<ExitOutcome> {
    private_files();
    if args.dir.try_exists().with_context(|| format!("cannot look at {}", args.dir.display()))? {
        bail!("{} exists: a backup is made into a new directory", args.dir.display());
    }
    let settings = NodeArgs {
        listen: None,
        cluster: None,
        data_dir: args.data_dir.clone(),
        advertise: None,
        config: args.config.clone(),
    };
    let data_dir = effective(&settings)?.config.data_dir;
    let cluster = DataDir::cluster_of(&data_dir).with_context(|| {
        format!(
            "{} is not the data directory of a node: name the node's with --data-dir, or its settings with --config",
            data_dir.display()
        )
    })?;
    let directory = open_directory(CWD, &data_dir, OFlags::empty())?;
    let described = match order_json(&args.server, "/v0/backup", args.form.output)? {
        Ok(described) => described,
        Err(refused) => return Ok(refused),
    };
    let what = format!("the backup that {} describes is not in {}", args.server.url, data_dir.display());
    let taken = open_directory(&directory, Path::new("backup"), OFlags::NOFOLLOW).context(what.clone())?;
    let label = read_label(&taken).context(what.clone())?;
    ensure!(label.cluster == cluster && is_described(&label, &described), "{what}: is it another node's directory?");
    let tables = if args.copy { TableFiles::Copied } else { TableFiles::Linked };
    fetch(&directory, &taken, &args.dir, tables)
        .with_context(|| format!("the backup is in {}, and could not be fetched from there", data_dir.display()))?;
    let dir = args.dir.display().to_string();
    let object = json!({"dir": dir, "node": label.node, "cluster": label.cluster.to_string(), "wall_ms": label.wall_ms,
        "sequence": label.sequence});
    show(args.form.output, &object, &dir)
}

fn open_directory(at: impl AsFd, path: &Path, links: OFlags) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | links;
    openat(at, path, flags, Mode::empty()).with_context(|| path.display().to_string())
}

fn read_label(backup: &OwnedFd) -> Result<Label> {
    let flags = OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let file = File::from(openat(backup, "BACKUP", flags, Mode::empty())?);
    let mut text = String::new();
    file.take(LABEL_BYTES_MAX).read_to_string(&mut text)?;
    Label::parse(&text).context("its label is damaged")
}

/// Whether the node's answer is about the backup with this label.
fn is_described(label: &Label, described: &Value) -> bool {
    let number = |name: &str| described.get(name).and_then(Value::as_u64);
    let node = described.get("node").and_then(Value::as_str);
    node == Some(label.node.as_str())
        && number("sequence") == Some(label.sequence)
        && number("wall_ms") == Some(label.wall_ms)
}

/// Moves `backup`, which is in `directory` under that name; copies it where tables are to be copied, and where that is
/// not one file system. Durable once it returns.
fn fetch(directory: &OwnedFd, backup: &OwnedFd, to: &Path, tables: TableFiles) -> Result<()> {
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_moved = tables == TableFiles::Linked
        && match renameat(directory, "backup", CWD, to) {
            Err(Errno::XDEV) => false,
            moved => moved.map(|()| true)?,
        };
    let copied = by_descriptor(directory).join(COPIED);
    if !is_moved {
        // Out of the way of the node's next backup. What is there already is of a copy that was interrupted.
        std::fs::remove_dir_all(&copied).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        renameat(directory, "backup", directory, COPIED)?;
        // By its descriptor, so that it is what was looked at.
        copy(&by_descriptor(backup), to, tables)?;
    }
    File::open(parent)?.sync_all()?;
    if !is_moved {
        std::fs::remove_dir_all(&copied)?;
    }
    Ok(())
}

fn by_descriptor(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// `kvorum restore`
pub(crate) fn restore(args: &RestoreArgs) -> Result<ExitOutcome> {
    private_files();
    let config = effective(&args.node)?.config;
    let scope = if args.whole_cluster { Scope::Cluster } else { Scope::Node };
    let label = kvorum_server::node::restore(&config, &args.backup, scope)?;
    let next = match scope {
        Scope::Node => "it stores and answers, and counts for no quorum until it has been rebuilt: see `kvorum status`",
        Scope::Cluster => "it votes once a majority of its peers has registered it: start all nodes",
    };
    let data_dir = config.data_dir.display().to_string();
    let text = format!("{} is restored into {data_dir}; {next}", label.node);
    show(args.form.output, &json!({"node": label.node, "data_dir": data_dir, "votes": args.whole_cluster}), &text)
}
