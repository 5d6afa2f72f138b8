//! `dev`: a cluster on this machine, each node a real process.
//!
//! Owns its children: they are in process groups of their own, so that Ctrl-C reaches them once and
//! through here; and each watches a pipe on its stdin, so that they end even if this process is killed.
//! Restarting a node that died is not its job: it says which one it was and stops the others.

use std::fs::create_dir_all;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kvorum_config::{NodeUrl, node_url};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::{sleep, timeout};

use crate::args::DevArgs;
use crate::client::{ClientRequest, ResponseBounds, send};
use crate::keys::dev::DevSecrets;
use crate::outcome::ExitOutcome;

/// For all nodes to become ready; a large log takes a while to recover.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// For a node to drain.
const STOP_DEADLINE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// `kvorum dev`
pub(crate) fn dev(args: &DevArgs) -> Result<ExitOutcome> {
    // The nodes' directories are their owner's alone.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(args))
}

struct DevNode {
    url: NodeUrl,
    /// Holds the pipe that the node watches.
    child: Child,
}

struct StopAll {
    interrupt: Signals,
    terminate: Signals,
}

impl StopAll {
    /// Cancel safe.
    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

async fn run(args: &DevArgs) -> Result<ExitOutcome> {
    let mut stop = StopAll { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? };
    let mut deaths = signal(SignalKind::child())?;
    let secrets = args.secure.then(|| DevSecrets::prepare(&args.data_dir)).transpose()?;
    let key = secrets.as_ref().map(DevSecrets::key).transpose()?;
    let mut nodes = start(args, secrets.as_ref())?;
    let urls: Vec<NodeUrl> = nodes.iter().map(|node| node.url.clone()).collect();
    let outcome = tokio::select! {
        () = stop.asked() => ExitOutcome::Done,
        (url, status) = first_death(&mut nodes, &mut deaths) => report_death(&url, status),
        ready = serve(&urls, &args.data_dir, secrets.as_ref().zip(key.as_deref())) => ready,
    };
    let stopped = stop_all(&mut nodes, &mut deaths, &mut stop).await;
    Ok(if outcome == ExitOutcome::Done { stopped } else { outcome })
}

/// Waits until all are ready, prints that, and stays. Returns only if they do not become ready.
async fn serve(urls: &[NodeUrl], data_dir: &Path, secured: Option<(&DevSecrets, &str)>) -> ExitOutcome {
    match timeout(START_DEADLINE, all_ready(urls)).await {
        // Its reader may be gone: the nodes run all the same.
        Ok(()) => drop(writeln!(std::io::stdout(), "{}", welcome(urls, data_dir, secured))),
        Err(_) => {
            say(format!("kvorum: the nodes are not ready after {} s; their logs say why", START_DEADLINE.as_secs()));
            return ExitOutcome::NotFound;
        }
    }
    std::future::pending().await
}

fn start(args: &DevArgs, secrets: Option<&DevSecrets>) -> Result<Vec<DevNode>> {
    let ports: Vec<u16> = (args.base_port..).take(usize::from(args.nodes)).collect();
    let admins: Vec<Option<u16>> = match args.admin_base_port {
        Some(first) => (first..).take(ports.len()).map(Some).collect(),
        None => vec![None; ports.len()],
    };
    // Held until all are checked: an admin listener may not have a node's port either.
    let mut held = Vec::new();
    let of_nodes = ports.iter().map(|port| (port, "--base-port"));
    for (port, flag) in of_nodes.chain(admins.iter().flatten().map(|port| (port, "--admin-base-port"))) {
        match TcpListener::bind(("127.0.0.1", *port)) {
            Ok(listener) => held.push(listener),
            Err(error) => {
                bail!("port {port} of 127.0.0.1 cannot be used ({error}): stop what uses it, or choose another {flag}")
            }
        }
    }
    drop(held);
    let urls: Vec<String> = ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect();
    let cluster = urls.join(",");
    let mut nodes = Vec::with_capacity(urls.len());
    for ((number, url), admin) in (1..).zip(&urls).zip(admins) {
        let data_dir = args.data_dir.join(format!("node-{number}"));
        create_dir_all(&data_dir).with_context(|| data_dir.display().to_string())?;
        let url = node_url(url).map_err(anyhow::Error::msg)?;
        let mut command = node_command(&url, &cluster, &data_dir)?;
        // What the user has set, in the environment or in a file, stands.
        let is_set = |name: &str| std::env::var_os(name).is_some() || std::env::var_os("KVORUM_CONFIG").is_some();
        command.envs(shares(args.nodes).into_iter().filter(|(name, _)| !is_set(name)));
        command.envs(admin.map(|port| ("KVORUM_ADMIN_LISTEN", format!("127.0.0.1:{port}"))));
        command.envs(secrets.map(DevSecrets::variables).into_iter().flatten());
        let child = command.spawn().context("a node's process")?;
        nodes.push(DevNode { url, child });
    }
    say(format!("starting {} nodes…", nodes.len()));
    Ok(nodes)
}

/// A node of a cluster on this machine, which ends with the pipe on its stdin, and is out of reach of Ctrl-C.
pub(crate) fn node_command(url: &NodeUrl, cluster: &str, data_dir: &Path) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", "--stop-on-stdin-eof", "--listen", &url.address().to_string()]);
    command.args(["--cluster", cluster, "--advertise", url.as_str(), "--data-dir"]).arg(data_dir);
    command.stdin(Stdio::piped()).process_group(0);
    Ok(command)
}

/// What a node gets of a machine that it shares with the others, and of the terminal.
pub(crate) fn shares(nodes: u16) -> [(&'static str, String); 3] {
    const MIB: u64 = 1 << 20;
    let nodes = u64::from(nodes);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let info = rustix::system::sysinfo();
    let memory = info.totalram.saturating_mul(u64::from(info.mem_unit)) / 4 / nodes / MIB;
    [
        ("KVORUM_RUNTIME_SHARDS", (cores / nodes).max(1).to_string()),
        ("KVORUM_MEMORY_BYTES", format!("{}MiB", memory.clamp(64, 512))),
        ("KVORUM_LOG_LEVEL", "warn".into()),
    ]
}

/// Cancel safe.
async fn all_ready(urls: &[NodeUrl]) {
    for url in urls {
        loop {
            let probe = url.clone();
            let request =
                ClientRequest { method: "GET", target: "/readyz", trace: false, accept: None, body: b"", key: None };
            let bounds = ResponseBounds::Silence(Duration::from_secs(1));
            let ask = move || send(&probe, bounds, &request).is_ok_and(|answer| answer.status == 200);
            if tokio::task::spawn_blocking(ask).await.unwrap_or(false) {
                break;
            }
            sleep(POLL).await;
        }
    }
}

/// Cancel safe: a death that was not taken is found again.
async fn first_death(nodes: &mut [DevNode], deaths: &mut Signals) -> (NodeUrl, ExitStatus) {
    loop {
        for node in nodes.iter_mut() {
            if let Ok(Some(status)) = node.child.try_wait() {
                return (node.url.clone(), status);
            }
        }
        deaths.recv().await;
    }
}

/// A line in one write: the nodes' logs go to the same place, and would come in between.
fn say(line: String) {
    // Its reader is gone: nothing to be done.
    let _ = std::io::stderr().write_all((line + "\n").as_bytes());
}

/// A node that refuses to start is a matter of usage; one that dies later is not.
fn report_death(url: &NodeUrl, status: ExitStatus) -> ExitOutcome {
    if status.code() == Some(2) {
        say(format!(
            "kvorum: node {url} did not start, its log says why; stopping the others. Another --nodes or --base-port is \
             another cluster: give it another --data-dir"
        ));
        return ExitOutcome::Usage;
    }
    say(format!("kvorum: node {url} ended unexpectedly ({status}); stopping the others"));
    ExitOutcome::NotFound
}

async fn stop_all(nodes: &mut [DevNode], deaths: &mut Signals, stop: &mut StopAll) -> ExitOutcome {
    say("stopping…".to_owned());
    for node in nodes.iter_mut() {
        // One that has been waited for is not signalled: its number may be another's by now.
        if matches!(node.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&node.child), Signal::TERM);
        }
    }
    let drained = tokio::select! {
        () = all_dead(nodes, deaths) => true,
        () = sleep(STOP_DEADLINE) => false,
        () = stop.asked() => false,
    };
    if drained {
        return ExitOutcome::Done;
    }
    for node in nodes.iter_mut().filter_map(|node| matches!(node.child.try_wait(), Ok(None)).then_some(node)) {
        say(format!("kvorum: node {} did not stop in time and was killed", node.url));
        let _ = node.child.kill();
        let _ = node.child.wait();
    }
    ExitOutcome::NotFound
}

async fn all_dead(nodes: &mut [DevNode], deaths: &mut Signals) {
    while nodes.iter_mut().any(|node| matches!(node.child.try_wait(), Ok(None))) {
        deaths.recv().await;
    }
}

fn welcome(urls: &[NodeUrl], data_dir: &Path, secured: Option<(&DevSecrets, &str)>) -> String {
    let lines: Vec<String> = (1..)
        .zip(urls)
        .map(|(number, url)| format!("  {url}  {}", data_dir.join(format!("node-{number}")).display()))
        .collect();
    let header = secured.map_or_else(String::new, |(_, key)| format!(" -H 'Authorization: Bearer {key}'"));
    let commands = secured.map_or_else(String::new, |(secrets, _)| {
        format!(
            "\n\nkvorum's own commands read the key from its file:\n\n  export KVORUM_KEY_FILE={}",
            secrets.key_file().display()
        )
    });
    let (first, last) = (urls.first().expect("at least one node"), urls.last().expect("at least one node"));
    format!(
        "\n{} nodes are ready, each with its data:\n\n{}\n\nStore through one, read through another:\n\n  \
         curl -i{header} -X PUT --data-binary 'hello' '{first}/v0/entity?id=greeting'\n  \
         curl -i{header} '{last}/v0/entity?id=greeting'{commands}\n\nCtrl-C stops them all; the data stays.\n",
        urls.len(),
        lines.join("\n"),
    )
}
