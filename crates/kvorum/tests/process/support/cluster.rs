//! Nodes as child processes. Every node dies with its `Cluster`, whatever the test did to it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::http::{Client, entity_at};
use super::wait::{SOON, wait_for, wait_until, wait_within};

/// Shards of every node, each with a connection of its own to every peer.
const SHARDS: usize = 2;
/// Bytes of log shown for each node of a failed test.
const LOG_TAIL: usize = 4_000;

/// The binary, with no setting of the developer's own in its environment.
pub fn kvorum() -> Command {
    bare(Command::new(env!("CARGO_BIN_EXE_kvorum")))
}

fn bare(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KVORUM_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// A port of 127.0.0.1 that is free now, below those that the system gives to outgoing connections.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(std::process::id() % 500).unwrap() * 40;
    loop {
        let port = 10_000 + own.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// One node: where it listens, where its files are, and its process while it runs.
pub struct Node {
    pub address: SocketAddr,
    pub data_dir: PathBuf,
    /// What goes before its command.
    prefix: Vec<String>,
    /// Its own variables, beside those of all nodes.
    variables: Vec<(String, String)>,
    log: PathBuf,
    child: Option<Child>,
}

impl Node {
    fn new(root: &Path, index: usize) -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], free_port())),
            data_dir: root.join(format!("data-{index}")),
            prefix: Vec::new(),
            variables: Vec::new(),
            log: root.join(format!("node-{index}.log")),
            child: None,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn exited(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().expect("a child can be waited for"))
    }
}

/// `n` nodes that list each other.
pub struct Cluster {
    nodes: Vec<Node>,
    /// Each node's `--cluster`.
    lists: Vec<String>,
    environment: Vec<(String, String)>,
    /// What clients show, if the nodes want a key.
    key: Option<String>,
    root: TempDir,
}

impl Cluster {
    /// Starts `n` nodes with little memory and waits until all are ready.
    pub fn start(n: usize) -> Self {
        Self::with(n, &[])
    }

    /// The same with settings, as `KVORUM_*` variables.
    pub fn with(n: usize, environment: &[(&str, &str)]) -> Self {
        let attempts = 5;
        for _ in 0..attempts {
            let mut cluster = Self::prepare(n, environment);
            cluster.spawn_all();
            if cluster.all_ready() {
                return cluster;
            }
        }
        panic!("no free ports in {attempts} attempts");
    }

    /// Chooses ports and directories and starts nothing.
    pub fn prepare(n: usize, environment: &[(&str, &str)]) -> Self {
        let root = tempfile::Builder::new().prefix("kvorum-test-").tempdir().expect("a temporary directory");
        let nodes: Vec<Node> = (0..n).map(|index| Node::new(root.path(), index)).collect();
        let list = nodes.iter().map(Node::url).collect::<Vec<_>>().join(",");
        let shards = SHARDS.to_string();
        // Scrub repairs by itself what a test has damaged: only where that is the subject.
        let defaults =
            [("KVORUM_MEMORY_BYTES", "64MiB"), ("KVORUM_RUNTIME_SHARDS", shards.as_str()), ("KVORUM_SCRUB_RATE", "0")];
        let given = defaults.iter().chain(environment);
        let all = given.map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { lists: vec![list; n], nodes, environment: all, key: None, root }
    }

    /// Puts the nodes elsewhere, before any starts: to other addresses, behind commands that run what follows them.
    /// What reaches those may do everything.
    pub fn place(&mut self, places: impl IntoIterator<Item = (SocketAddr, Vec<String>)>) {
        for (node, (address, prefix)) in self.nodes.iter_mut().zip(places) {
            (node.address, node.prefix) = (address, prefix);
        }
        self.environment.push(("KVORUM_INSECURE".to_owned(), "true".to_owned()));
        let list = self.nodes.iter().map(Node::url).collect::<Vec<_>>().join(",");
        self.lists.fill(list);
    }

    /// Gives one node a variable.
    pub fn set_variable(&mut self, index: usize, name: &str, value: &str) {
        self.nodes[index].variables.push((name.to_owned(), value.to_owned()));
    }

    /// Gives node `index` another list of the cluster's nodes.
    pub fn set_list(&mut self, index: usize, list: String) {
        self.lists[index] = list;
    }

    /// Puts a node's data elsewhere, before it starts.
    pub fn set_data_dir(&mut self, index: usize, directory: PathBuf) {
        self.nodes[index].data_dir = directory;
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn client(&self, index: usize) -> Client {
        Client::new(self.nodes[index].address).key(self.key.as_deref())
    }

    /// Clients of this cluster show this key from now on.
    pub fn set_key(&mut self, key: &str) {
        self.key = Some(key.to_owned());
    }

    /// Gives all nodes a variable.
    pub fn set_all(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    pub fn clients(&self) -> Vec<Client> {
        (0..self.len()).map(|index| self.client(index)).collect()
    }

    /// The binary where node `index` is, with its variables.
    pub fn command(&self, index: usize) -> Command {
        let node = &self.nodes[index];
        let mut command = match node.prefix.split_first() {
            None => kvorum(),
            Some((program, arguments)) => {
                let mut command = bare(Command::new(program));
                command.args(arguments).arg(env!("CARGO_BIN_EXE_kvorum"));
                command
            }
        };
        command.envs(self.environment.iter().chain(&node.variables).map(|(name, value)| (name, value)));
        command
    }

    /// The command that starts node `index`.
    pub fn serve(&self, index: usize) -> Command {
        let node = &self.nodes[index];
        let mut command = self.command(index);
        command.arg("serve").arg("--listen").arg(node.address.to_string());
        command.arg("--cluster").arg(&self.lists[index]).arg("--data-dir").arg(&node.data_dir);
        command
    }

    /// Starts a node that does not run, and returns at once.
    pub fn spawn(&mut self, index: usize) {
        self.spawn_as(index, self.serve(index));
    }

    /// The same with a command that ends up being the node.
    pub fn spawn_as(&mut self, index: usize, mut command: Command) {
        let node = &mut self.nodes[index];
        assert!(node.child.is_none(), "node {index} runs already");
        let log = OpenOptions::new().create(true).append(true).open(&node.log).expect("a log file");
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        // Nor does a node outlive a test process that is killed.
        command.arg("--stop-on-stdin-eof").stdin(Stdio::piped());
        node.child = Some(command.spawn().expect("the binary starts"));
    }

    pub fn spawn_all(&mut self) {
        (0..self.len()).for_each(|index| self.spawn(index));
    }

    /// Starts a node and waits until it is ready and all that run are connected to each other.
    #[track_caller]
    pub fn restart(&mut self, index: usize) {
        self.spawn(index);
        self.wait_ready(index);
        let running: Vec<usize> = (0..self.len()).filter(|&other| self.nodes[other].child.is_some()).collect();
        running.iter().for_each(|&other| self.wait_connected(other, running.len() - 1));
    }

    /// Waits until a node is ready.
    #[track_caller]
    pub fn wait_ready(&mut self, index: usize) {
        wait_for(&format!("node {index} is ready"), || {
            if let Some(status) = self.nodes[index].exited() {
                panic!("node {index} exited with {status}");
            }
            self.is_ready(index).then_some(())
        });
    }

    /// Waits until all run and are connected to each other.
    #[track_caller]
    pub fn wait_whole(&mut self) {
        let n = self.len();
        (0..n).for_each(|index| self.wait_ready(index));
        for index in 0..n {
            self.wait_connected(index, n - 1);
            self.wait_answers(index, n);
        }
    }

    /// Waits until every shard of node `index`, the background shard too, is connected to `peers` others.
    #[track_caller]
    pub fn wait_connected(&self, index: usize, peers: usize) {
        let goal = (peers * (SHARDS + 1)) as f64;
        wait_until("all shards are connected", || peers == 0 || self.metric(index, "kvorum_peer_connections") >= goal);
    }

    /// Waits until a read through node `index` that needs `ack` of all nodes is answered.
    #[track_caller]
    pub fn wait_answers(&self, index: usize, ack: usize) {
        let mut client = self.client(index);
        let target = entity_at("is everybody there?", ack, self.len());
        wait_for(&format!("{ack} replicas answer node {index}"), || {
            let response = client.send("GET", &target, &[], None).ok()?;
            (response.status == 404).then_some(())
        });
    }

    pub fn is_ready(&self, index: usize) -> bool {
        let mut client = self.client(index).timeout(Duration::from_secs(2));
        client.send("GET", "/readyz", &[], None).is_ok_and(|response| response.status == 200)
    }

    /// Whether all became ready; not if a port was taken in between.
    fn all_ready(&mut self) -> bool {
        let clash = wait_for("all nodes are ready or one has exited", || {
            for index in 0..self.len() {
                if let Some(status) = self.nodes[index].exited() {
                    let log = self.log(index);
                    assert!(log.contains("in use"), "node {index} exited with {status}:\n{log}");
                    return Some(true);
                }
            }
            (0..self.len()).all(|index| self.is_ready(index)).then_some(false)
        });
        if !clash {
            self.wait_whole();
        }
        !clash
    }

    /// `kill -9`, and waits for the end of the process.
    pub fn kill(&mut self, index: usize) {
        let mut child = self.nodes[index].child.take().expect("the node runs");
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
    }

    /// `kill -9` of all, as nearly at once as it goes.
    pub fn kill_all(&mut self) {
        let all: Vec<usize> = (0..self.len()).collect();
        self.kill_at_once(&all);
    }

    /// `kill -9` of some, as nearly at once as it goes.
    pub fn kill_at_once(&mut self, nodes: &[usize]) {
        nodes.iter().for_each(|index| self.signal(*index, Signal::KILL));
        nodes.iter().for_each(|index| self.kill(*index));
    }

    pub fn signal(&self, index: usize, signal: Signal) {
        signal_to(&self.nodes[index], signal);
    }

    pub fn pid(&self, index: usize) -> Pid {
        pid_of(&self.nodes[index])
    }

    /// Stops the process as a debugger would: connections stay, answers do not come.
    pub fn pause(&self, index: usize) {
        self.signal(index, Signal::STOP);
    }

    pub fn resume(&self, index: usize) {
        self.signal(index, Signal::CONT);
    }

    /// SIGTERM; gives the exit status.
    #[track_caller]
    pub fn terminate(&mut self, index: usize) -> ExitStatus {
        self.signal(index, Signal::TERM);
        self.wait_exit(index, SOON)
    }

    #[track_caller]
    pub fn wait_exit(&mut self, index: usize, limit: Duration) -> ExitStatus {
        let status = wait_within(limit, &format!("node {index} exits"), || self.nodes[index].exited());
        self.nodes[index].child = None;
        status
    }

    /// Whether the process runs.
    pub fn runs(&mut self, index: usize) -> bool {
        self.nodes[index].child.is_some() && self.nodes[index].exited().is_none()
    }

    /// Whether it has ended by itself.
    pub fn has_exited(&mut self, index: usize) -> bool {
        self.nodes[index].exited().is_some()
    }

    /// Starts a node that was killed, or has ended by itself.
    pub fn spawn_if_dead(&mut self, index: usize) {
        if !self.runs(index) {
            self.nodes[index].child = None;
            self.spawn(index);
        }
    }

    /// The data directory of a node, as it shows it.
    pub fn directory(&self, index: usize) -> String {
        let page = self.client(index).get("/v0/cluster").json();
        let own = page["nodes"].as_array().unwrap().iter().find(|node| node["state"] == "self");
        own.expect("a node shows itself")["directory"].as_str().unwrap().to_owned()
    }

    /// Whether the node's answers count for everything; not if that is unknown.
    pub fn votes(&self, index: usize) -> bool {
        let mut client = self.client(index).timeout(Duration::from_secs(2));
        let metrics = client.send("GET", "/metrics", &[], None);
        metrics.is_ok_and(|response| response.text().contains("\nkvorum_node_votes 1.0\n"))
    }

    /// Everything that the node has printed since the test began.
    pub fn log(&self, index: usize) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.nodes[index].log).unwrap_or_default()).into_owned()
    }

    /// The names of the files with this ending in one of a node's directories.
    pub fn files(&self, index: usize, directory: &str, ending: &str) -> BTreeSet<OsString> {
        let entries = std::fs::read_dir(self.nodes[index].data_dir.join(directory)).expect("the directory is there");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names.filter(|name| name.to_string_lossy().ends_with(ending)).collect()
    }

    /// A field of `/proc/PID/status`, in bytes: `VmRSS`, or `VmHWM`, its greatest value so far.
    pub fn memory(&self, index: usize, field: &str) -> u64 {
        let pid = self.pid(index).as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process has a status");
        let line = status.lines().find(|line| line.starts_with(field)).expect("the field exists");
        line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a number of kB") * 1024
    }

    /// The sum of all samples of a metric, or one sample, by its labels.
    #[track_caller]
    pub fn metric(&self, index: usize, name: &str) -> f64 {
        // A node that has as many requests as it may have refuses this one, too.
        let text = wait_for("the node shows its metrics", || {
            let answer = self.client(index).get("/metrics");
            (answer.status != 503).then(|| answer.text())
        });
        let samples = text
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' ')));
        let values: Vec<f64> = samples.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        assert!(!values.is_empty(), "no metric {name} in:\n{text}");
        values.iter().sum()
    }

    /// What this node itself holds at or after `start`, in the order in which it came: key and value.
    #[track_caller]
    pub fn local(&self, index: usize, start: &str) -> Vec<(String, String)> {
        let response = self.client(index).get(&format!("/v0/entities?start={start}"));
        assert_eq!(response.status, 200, "{response:?}");
        let chunks = response.chunks.expect("a range comes in chunks");
        chunks.iter().map(|chunk| split_record(chunk)).collect()
    }

    /// Everything that this node itself holds, if its answer is whole: the chunks, one for each record.
    pub fn try_local(&self, index: usize) -> Option<Vec<Vec<u8>>> {
        let response = self.client(index).send("GET", "/v0/entities?start=%00", &[], None).ok()?;
        response.chunks.filter(|_| response.status == 200)
    }

    /// How many nodes hold the key.
    #[track_caller]
    pub fn copies(&self, key: &str) -> usize {
        (0..self.len()).filter(|&index| self.local(index, key).first().is_some_and(|(found, _)| found == key)).count()
    }

    /// `kvorum status` of a node: what it prints.
    pub fn status_text(&self, index: usize) -> String {
        let output = kvorum().args(["status", "--url", &self.nodes[index].url()]).output().expect("the binary runs");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }
}

/// A chunk of a range: key, newline, value.
pub fn split_record(chunk: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(chunk);
    let (key, value) = text.split_once('\n').unwrap_or_else(|| panic!("no newline in the chunk {text:?}"));
    (key.to_owned(), value.to_owned())
}

fn signal_to(node: &Node, signal: Signal) {
    // The process may have died by itself: the wait for it shows that.
    let _gone = kill_process(pid_of(node), signal);
}

fn pid_of(node: &Node) -> Pid {
    let child = node.child.as_ref().expect("the node runs");
    Pid::from_raw(i32::try_from(child.id()).unwrap()).expect("a process id is not zero")
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if let Some(mut child) = node.child.take() {
                let _gone = child.kill();
                let _gone = child.wait();
            }
            if std::thread::panicking() {
                let text = std::fs::read(&node.log).unwrap_or_default();
                let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(LOG_TAIL)..]).into_owned();
                eprintln!("--- node {index} {} ---\n{tail}", node.url());
            }
        }
    }
}

/// A file's bytes, changed in place by the closure.
pub fn rewrite(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("the file is there");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("the file can be written");
}

/// All files below a directory.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("the directory is there") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            // Second names of what is in `store`.
            true if path.ends_with("freed") => {}
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

/// The files of a node that contain these bytes, and where.
fn places(directory: &Path, bytes: &[u8]) -> Vec<(PathBuf, usize)> {
    let find = |path: PathBuf| {
        let content = std::fs::read(&path).expect("a file of a stopped node");
        content.windows(bytes.len()).position(|window| window == bytes).map(|at| (path, at))
    };
    files(directory).into_iter().filter_map(find).collect()
}

/// Flips one bit in the middle of every place where the value is stored.
pub fn flip(directory: &Path, value: &[u8], extension: &str) {
    let places = places(directory, value);
    assert!(
        places.iter().any(|(path, _)| path.extension().is_some_and(|found| found == extension)),
        "the value is in no .{extension} file: {places:?} of {:?}",
        files(directory)
    );
    for (path, at) in places {
        rewrite(&path, |content| content[at + value.len() / 2] ^= 0x10);
    }
}

/// The greatest log file of a store that is not open: the one that was live. Without the zeros behind its records.
pub fn live_log(directory: &Path) -> PathBuf {
    kvorum_engine_rocksdb::log_zeros::cut(&directory.join("store")).expect("the logs can be cut");
    let logs = files(directory).into_iter().filter(|path| path.extension().is_some_and(|found| found == "log"));
    logs.max_by_key(|path| std::fs::metadata(path).unwrap().len()).expect("a write-ahead log")
}

/// An empty file's handle, for a child whose output is read later.
pub fn output_file(path: &Path) -> File {
    File::create(path).expect("a file for the output")
}
