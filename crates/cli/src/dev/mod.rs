//! `dev`: a cluster on this machine, each node a real process, and orders to its nodes from a second terminal.
//!
//! Owns its children: they are in process groups of their own, so that Ctrl-C reaches them once and
//! through here; and each watches a pipe on its stdin, so that they end even if this process is killed. A node that dies
//! once all were ready is named and started again on order, never by itself: a failure shall be seen.
//!
//! One task has the nodes ([`cluster`]). Orders come to it through a [`control::DevControl`], from the [`socket`] in the
//! data directory ([`home`]) or from this process.

pub(crate) mod args;
mod cluster;
mod control;
mod home;
pub(crate) mod nodes;
mod order;
mod pages;
mod socket;
mod words;

use std::ffi::OsString;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use kvorum_config::{NodeUrl, node_url};
use kvorum_console::Console;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use self::args::{DevArgs, DevClusterArgs};
use self::cluster::{DevCluster, DevDeath};
use self::control::{AwaitedOrder, DevControl, refusal};
use self::home::DevHome;
use self::nodes::{DevLaunch, DevNode, node_command, shares};
use self::pages::start_console;
use self::words::DevWords;
use crate::client::{ClientRequest, ResponseBounds, send};
use crate::keys::dev::DevSecrets;
use crate::outcome::ExitOutcome;

/// For all nodes to become ready; a large log takes a while to recover.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// For a node to drain.
const STOP_DEADLINE: Duration = Duration::from_secs(10);
/// From a node's port to that of its admin listener.
const ADMIN_ABOVE: u16 = 1000;
const POLL: Duration = Duration::from_millis(50);

/// `kvorum dev`
pub(crate) fn dev(args: &DevArgs) -> Result<ExitOutcome> {
    if let Some(order) = &args.order {
        return socket::order(order);
    }
    // The nodes' directories are their owner's alone.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    // One thread, the main one: see `DevNode::start`.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(&args.cluster))
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

async fn run(args: &DevClusterArgs) -> Result<ExitOutcome> {
    let mut stop = StopAll { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? };
    let mut deaths = signal(SignalKind::child())?;
    let home = DevHome::lock(&args.data_dir)?;
    let secrets = args.secure.then(|| DevSecrets::prepare(&args.data_dir)).transpose()?;
    let key = secrets.as_ref().map(DevSecrets::key).transpose()?;
    let launches = launches(args, secrets.as_ref())?;
    let urls: Vec<NodeUrl> = launches.iter().map(|launch| launch.url.clone()).collect();
    let listener = tokio::net::UnixListener::from_std(home.listen()?)?;
    let (control, mut orders) = DevControl::new();
    let console =
        (!args.no_console).then(|| start_console(&launches, &args.data_dir, secrets.as_ref(), control.clone()));
    let console = console.transpose()?;
    let nodes = (1..).zip(launches).map(|(number, launch)| DevNode::start(number, launch));
    let mut cluster = DevCluster(nodes.collect::<Result<_>>()?);
    say(format!("starting {} nodes…", urls.len()));
    tokio::spawn(socket::serve(listener, control));
    let words = DevWords::new(&args.data_dir);
    let outcome = tokio::select! {
        () = stop.asked() => ExitOutcome::Done,
        begun = begin(&mut cluster, &urls, &mut deaths, &mut orders) => match begun {
            Err(outcome) => outcome,
            Ok(()) => {
                let welcome = welcome(&urls, &args.data_dir, secrets.as_ref().zip(key.as_deref()), &words);
                let pages = console.as_ref().and_then(Console::url).map_or_else(String::new, |url| words.pages(&url));
                // Its reader may be gone: the nodes run all the same.
                drop(writeln!(std::io::stdout(), "{welcome}{pages}\nCtrl-C stops them all; the data stays.\n"));
                tokio::select! {
                    () = stop.asked() => ExitOutcome::Done,
                    () = supervise(&mut cluster, &mut deaths, &mut orders, &words) => ExitOutcome::Done,
                }
            }
        },
    };
    // What comes from now on is refused.
    drop(orders);
    drop(console);
    let stopped = stop_all(&mut cluster, &mut deaths, &mut stop).await;
    Ok(if outcome == ExitOutcome::Done { stopped } else { outcome })
}

/// Waits until all are ready. Until then a node that dies is the end of all.
async fn begin(
    cluster: &mut DevCluster,
    urls: &[NodeUrl],
    deaths: &mut Signals,
    orders: &mut mpsc::Receiver<AwaitedOrder>,
) -> Result<(), ExitOutcome> {
    let ready = timeout(START_DEADLINE, all_ready(urls));
    tokio::pin!(ready);
    loop {
        if let Some(death) = cluster.reap().first() {
            return Err(report_death(urls, death));
        }
        tokio::select! {
            _ = deaths.recv() => {}
            Some(AwaitedOrder { line, answer }) = orders.recv() => {
                let is_status = line.trim() == "status";
                let early = || refusal("the nodes are still starting: give orders once they are ready");
                // Whoever has gone needs no answer.
                let _ = answer.send(if is_status { cluster.status() } else { early() });
            }
            ready = &mut ready => {
                let seconds = START_DEADLINE.as_secs();
                return ready.map_err(|_| {
                    say(format!("kvorum: the nodes are not ready after {seconds} s; their logs say why"));
                    ExitOutcome::NotFound
                });
            }
        }
    }
}

/// Tells of deaths and carries orders out, without end.
async fn supervise(
    cluster: &mut DevCluster,
    deaths: &mut Signals,
    orders: &mut mpsc::Receiver<AwaitedOrder>,
    words: &DevWords,
) {
    loop {
        for death in cluster.reap() {
            say(cluster.obituary(&death, words));
        }
        tokio::select! {
            _ = deaths.recv() => {}
            Some(order) = orders.recv() => {
                let (answer, death) = cluster.answer(&order.line).await;
                if let Some(death) = death {
                    say(cluster.obituary(&death, words));
                }
                // Whoever has gone needs no answer.
                let _ = order.answer.send(answer);
            }
        }
    }
}

/// How the nodes are started, once all ports are known to be free.
fn launches(args: &DevClusterArgs, secrets: Option<&DevSecrets>) -> Result<Vec<DevLaunch>> {
    let ports: Vec<u16> = (args.base_port..).take(usize::from(args.nodes)).collect();
    let admins = admin_ports(args, &ports);
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
    // What the user has set, in the environment or in a file, stands.
    let is_set = |name: &str| std::env::var_os(name).is_some() || std::env::var_os("KVORUM_CONFIG").is_some();
    let launch = |((number, url), admin): ((u16, &String), Option<u16>)| {
        let data_dir = args.data_dir.join(format!("node-{number}"));
        let url = node_url(url).map_err(anyhow::Error::msg)?;
        let mut command = node_command(&url, &cluster, &data_dir)?;
        command.envs(shares(args.nodes).into_iter().filter(|(name, _)| !is_set(name)));
        command.envs(admin.map(|port| ("KVORUM_ADMIN_LISTEN", OsString::from(format!("127.0.0.1:{port}")))));
        command.envs(secrets.map(DevSecrets::variables).into_iter().flatten());
        Ok(DevLaunch { url, data_dir, admin, command })
    };
    (1..).zip(&urls).zip(admins).map(launch).collect()
}

/// The ports of the nodes' admin listeners. Those that only the console needs are left out where one is in use.
fn admin_ports(args: &DevClusterArgs, ports: &[u16]) -> Vec<Option<u16>> {
    let all = match args.admin_base_port {
        Some(first) => Some((first..).take(ports.len()).collect::<Vec<u16>>()),
        None if args.no_console || std::env::var_os("KVORUM_ADMIN_LISTEN").is_some() => None,
        None => {
            let above: Option<Vec<u16>> = ports.iter().map(|port| port.checked_add(ADMIN_ABOVE)).collect();
            above.filter(|above| above.iter().all(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()))
        }
    };
    all.map_or_else(|| vec![None; ports.len()], |all| all.into_iter().map(Some).collect())
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

/// A line in one write: the nodes' logs go to the same place, and would come in between.
fn say(line: String) {
    // Its reader is gone: nothing to be done.
    let _ = std::io::stderr().write_all((line + "\n").as_bytes());
}

/// A node that refuses to start is a matter of usage; another death is not.
fn report_death(urls: &[NodeUrl], death: &DevDeath) -> ExitOutcome {
    let url = urls.get(usize::from(death.number) - 1).map_or("?", |url| url.as_str());
    let status = death.status;
    if status.code() == Some(2) {
        say(format!(
            "kvorum: node {url} did not start, its log says why; stopping the others. Another --nodes or --base-port is \
             another cluster: give it another --data-dir"
        ));
        return ExitOutcome::Usage;
    }
    say(format!("kvorum: node {url} ended before all were ready ({status}); stopping the others"));
    ExitOutcome::NotFound
}

async fn stop_all(cluster: &mut DevCluster, deaths: &mut Signals, stop: &mut StopAll) -> ExitOutcome {
    say("stopping…".to_owned());
    cluster.stop();
    let drained = tokio::select! {
        () = cluster.all_dead(deaths) => true,
        () = sleep(STOP_DEADLINE) => false,
        () = stop.asked() => false,
    };
    if drained {
        return ExitOutcome::Done;
    }
    for node in &mut cluster.0 {
        if node.end() {
            say(format!("kvorum: node {} did not stop in time and was killed", node.url()));
        }
    }
    ExitOutcome::NotFound
}

fn welcome(urls: &[NodeUrl], data_dir: &Path, secured: Option<(&DevSecrets, &str)>, words: &DevWords) -> String {
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
         curl -i{header} '{last}/v0/entity?id=greeting'{commands}{}\n",
        urls.len(),
        lines.join("\n"),
        words.tour(urls),
    )
}
