//! `console`: pages in a browser that show a cluster, served by this process on this machine.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use kvorum_config::NodeUrl;
use kvorum_console::{ConsoleLevel, ConsoleMode, ConsoleNode, ConsoleSettings, listen, start};
use tokio::signal::unix::{SignalKind, signal};

use crate::key_file::{ClientKey, client_key};
use crate::node_args::{UrlList, url_list};
use crate::outcome::ExitOutcome;

/// Show a cluster in a browser: what it does, what it lacks, and what it holds.
///
/// This process asks the nodes once a second, and serves the pages on this machine alone; nodes open nothing for it. It
/// starts before the cluster and outlives it. The URL that it prints ends in a secret: who has it may do what `--level`
/// says.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kvorum console
  kvorum console --url http://10.0.0.1:8080,http://10.0.0.2:8080,http://10.0.0.3:8080 --key-file operator.key
From another machine: ssh -L 8079:127.0.0.1:8079 HOST, and there kvorum console --listen 127.0.0.1:8079")]
pub struct ConsoleArgs {
    /// All nodes of the cluster.
    #[arg(
        long,
        value_name = "URL,URL,…",
        env = "KVORUM_URL",
        default_value = "http://127.0.0.1:8080,http://127.0.0.1:8081,http://127.0.0.1:8082",
        value_parser = url_list
    )]
    pub url: UrlList,
    /// The file with the key that nodes are shown, where they want one; it needs the right `status`.
    #[arg(long, value_name = "FILE", env = "KVORUM_KEY_FILE", value_parser = client_key)]
    pub key_file: Option<ClientKey>,
    /// What pages may do. `write` lets them write and delete keys, and start repair and scrub.
    #[arg(long, value_name = "LEVEL", default_value = "read")]
    pub level: PageLevel,
    /// Where it listens: an address of this machine alone. Port 0 is any that is free.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Serve pages from a directory instead of those that are built in.
    #[arg(long, value_name = "DIR", hide = true)]
    pub assets: Option<PathBuf>,
}

/// What pages may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PageLevel {
    /// Look, and read keys.
    Read,
    /// Also write and delete keys, and start repair and scrub.
    Write,
}

/// `kvorum console`
pub(crate) fn console(args: &ConsoleArgs) -> Result<ExitOutcome> {
    let settings = ConsoleSettings {
        nodes: args.url.0.iter().map(|url| console_node(url, None)).collect(),
        key: args.key_file.as_ref().map(|key| key.text().to_owned()),
        level: match args.level {
            PageLevel::Read => ConsoleLevel::Read,
            PageLevel::Write => ConsoleLevel::Write,
        },
        mode: ConsoleMode::Console,
        lab: None,
        jobs: None,
        assets: args.assets.clone(),
    };
    let console = start(settings, Some(listen(args.listen)?))?;
    let url = console.url().expect("it listens");
    writeln!(
        std::io::stdout(),
        "The console is at\n\n  {url}\n\nOpen it in a browser of this machine. Ctrl-C ends it."
    )?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(ExitOutcome::Done)
    })
}

/// A node as the console knows it. `admin`: its admin listener.
pub(crate) fn console_node(url: &NodeUrl, admin: Option<String>) -> ConsoleNode {
    ConsoleNode { url: url.to_string(), address: url.address().to_string(), admin }
}
