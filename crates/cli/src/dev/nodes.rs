//! One node of `dev`: a process that is started, signalled and told over its stdin, again and again.

use std::fs::create_dir_all;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use kvorum_config::NodeUrl;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// How a node is started, each time anew.
pub(crate) struct DevLaunch {
    pub(crate) url: NodeUrl,
    pub(crate) data_dir: PathBuf,
    /// The port of its admin listener.
    pub(crate) admin: Option<u16>,
    /// Made once: by then the program's file may have been replaced, and the new one is started.
    pub(crate) command: Command,
}

/// A node, numbered from 1.
pub(crate) struct DevNode {
    pub(crate) number: u16,
    launch: DevLaunch,
    /// `None` once its end is known.
    process: Option<NodeProcess>,
}

struct NodeProcess {
    /// Holds the pipe that the node watches.
    child: Child,
    is_paused: bool,
    slow_ms: u32,
    skew_s: i32,
}

impl DevNode {
    /// To be called on the main thread: what a node does at the death of its parent, it does at that of the thread.
    pub(crate) fn start(number: u16, mut launch: DevLaunch) -> Result<Self> {
        let process = Some(spawn(&mut launch)?);
        Ok(Self { number, launch, process })
    }

    pub(crate) fn url(&self) -> &NodeUrl {
        &self.launch.url
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.process.is_none()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.as_ref().is_some_and(|process| !process.is_paused)
    }

    /// How it ended, if that was not known yet.
    pub(crate) fn reap(&mut self) -> Option<ExitStatus> {
        let status = self.process.as_mut()?.child.try_wait().ok().flatten()?;
        self.process = None;
        Some(status)
    }

    /// Starts it anew, as at first. What was wrong with it ended with its process.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        match &self.process {
            Some(process) if process.is_paused => {
                return Err(format!("node {0} is paused: `kvorum dev resume {0}` has it go on", self.number));
            }
            Some(_) => return Err(format!("node {} runs already", self.number)),
            None => {}
        }
        // Its log would say the same, and then it would be dead again.
        if let Err(error) = TcpListener::bind(self.url().address().to_string()) {
            return Err(format!("{} cannot be used ({error}): stop what uses it", self.url().address()));
        }
        self.process = Some(spawn(&mut self.launch).map_err(|error| format!("{error:#}"))?);
        Ok(())
    }

    /// Has it end at once, paused or not.
    pub(crate) fn kill(&mut self) -> Result<(), String> {
        self.signal(Signal::KILL)
    }

    /// Has it stand still. Not before it listens: until then it does not go on by itself when this process dies.
    pub(crate) fn pause(&mut self) -> Result<(), String> {
        let number = self.number;
        if self.process()?.is_paused {
            return Err(format!("node {number} is paused already"));
        }
        // The kernel takes connections, so also those to a node that hangs.
        let address = self.url().address().to_string().parse::<SocketAddr>().map_err(|error| error.to_string())?;
        if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            return Err(format!("node {number} is still starting: pause it in a moment"));
        }
        self.signal(Signal::STOP)?;
        self.process()?.is_paused = true;
        Ok(())
    }

    pub(crate) fn resume(&mut self) -> Result<(), String> {
        if !self.process()?.is_paused {
            return Err(format!("node {} is not paused", self.number));
        }
        self.signal(Signal::CONT)?;
        self.process()?.is_paused = false;
        Ok(())
    }

    pub(crate) fn slow(&mut self, ms: u32) -> Result<(), String> {
        self.tell(&format!("slow {ms}\n"))?;
        self.process()?.slow_ms = ms;
        Ok(())
    }

    pub(crate) fn skew(&mut self, seconds: i32) -> Result<(), String> {
        self.tell(&format!("skew {seconds}\n"))?;
        self.process()?.skew_s = seconds;
        Ok(())
    }

    /// Has it drain, also if it is paused.
    pub(crate) fn stop(&mut self) {
        // One that is dead has stopped.
        let _ = self.signal(Signal::TERM).and_then(|()| self.signal(Signal::CONT));
    }

    /// Kills it and waits for its end; whether there was anything to kill.
    pub(crate) fn end(&mut self) -> bool {
        let _ = self.reap();
        let Some(mut process) = self.process.take() else { return false };
        let _ = process.child.kill();
        let _ = process.child.wait();
        true
    }

    /// As orders are answered.
    pub(crate) fn json(&self) -> Value {
        let state = match &self.process {
            None => "dead",
            Some(process) if process.is_paused => "paused",
            Some(_) => "running",
        };
        let (slow_ms, skew_s) = self.process.as_ref().map_or((0, 0), |process| (process.slow_ms, process.skew_s));
        json!({"number": self.number, "url": self.url().as_str(), "state": state, "slow_ms": slow_ms, "skew_s": skew_s})
    }

    fn process(&mut self) -> Result<&mut NodeProcess, String> {
        let number = self.number;
        self.process.as_mut().ok_or_else(|| format!("node {number} is dead: `kvorum dev start {number}` starts it"))
    }

    /// One that has been waited for is not signalled: its number may be another's by now.
    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        let number = self.number;
        let child = &mut self.process()?.child;
        match child.try_wait() {
            Ok(None) => kill_process(Pid::from_child(child), signal).map_err(|error| error.to_string()),
            _ => Err(format!("node {number} has just ended")),
        }
    }

    /// Puts a line into its pipe, at once or not at all.
    fn tell(&mut self, line: &str) -> Result<(), String> {
        let number = self.number;
        let stdin = self.process()?.child.stdin.as_mut();
        let told = stdin.map(|pipe| pipe.write_all(line.as_bytes()));
        match told {
            Some(Ok(())) => Ok(()),
            _ => Err(format!("node {number} takes no orders at present: it is ending, or has been paused for long")),
        }
    }
}

fn spawn(launch: &mut DevLaunch) -> Result<NodeProcess> {
    create_dir_all(&launch.data_dir).with_context(|| launch.data_dir.display().to_string())?;
    let child = launch.command.spawn().context("a node's process")?;
    if let Some(pipe) = &child.stdin {
        // This process waits for no node that does not read.
        fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
    }
    Ok(NodeProcess { child, is_paused: false, slow_ms: 0, skew_s: 0 })
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
