"""Nodes for the benchmarks: started, asked, frozen, killed; their processor time and memory. Standard library only."""

import contextlib
import http.client
import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
TICKS = os.sysconf("SC_CLK_TCK")


def arguments(parser):
    """The options that every benchmark has."""
    parser.add_argument("--binary", default=str(TARGET / "release" / "kvorum"), help="default: %(default)s")
    parser.add_argument("--data", help="where the nodes keep their data; default: a temporary directory here")
    parser.add_argument("--memory", default="512MiB", help="memory_bytes of each node; default: %(default)s")
    parser.add_argument("--durability", default="fsync", choices=["fsync", "os"], help="default: %(default)s")
    parser.add_argument("--json", help="write the results into this file, too")
    options = parser.parse_args()
    if not os.access(options.binary, os.X_OK):
        sys.exit(f"no {options.binary}: `cargo build --release -p kvorum --bins` makes it, CARGO_TARGET_DIR or --binary says where")
    return options


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_listening(port):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


class Nodes:
    """A cluster of child processes on loopback; all of them end with the `with` block."""

    def __init__(self, count, options):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="kvorum-bench-", dir=options.data))
        self.ports = [free_port() for _ in range(count)]
        self.options = options
        self.processes = [None] * count
        # Of each request of the benchmark itself.
        self.headers = {}

    def __enter__(self):
        try:
            for index in range(len(self.ports)):
                self.spawn(index)
            self.wait_whole()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in filter(None, self.processes):
            process.kill()
            process.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def url(self, index):
        return f"http://127.0.0.1:{self.ports[index]}"

    def command(self, index):
        command = [self.options.binary, "serve", "--listen", f"127.0.0.1:{self.ports[index]}"]
        command += ["--cluster", ",".join(map(self.url, range(len(self.ports))))]
        return command + ["--data-dir", str(self.root / f"data-{index}")]

    def environment(self):
        # The nodes share the cores, as with `kvorum dev`.
        shared = {"KVORUM_RUNTIME_SHARDS": str(max(1, os.cpu_count() // len(self.ports)))}
        return {**shared, **os.environ, "KVORUM_MEMORY_BYTES": self.options.memory, "KVORUM_DURABILITY": self.options.durability}

    def spawn(self, index):
        with open(self.root / f"node-{index}.log", "ab") as log:
            process = subprocess.Popen(self.command(index), stdout=log, stderr=log, env=self.environment())
        self.processes[index] = process

    def wait_whole(self):
        """Waits until a read that needs every node is answered by every node."""
        count = len(self.ports)
        for index in range(count):
            deadline = time.monotonic() + 60
            while self.status(index, f"/v0/entity?id=whole&ack={count}&from={count}") != 404:
                if self.processes[index].poll() is not None or time.monotonic() > deadline:
                    sys.exit((self.root / f"node-{index}.log").read_text()[-4000:] + f"\nnode {index} is not up")
                time.sleep(0.05)

    def status(self, index, target):
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[index], timeout=10)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", target, headers=self.headers)
            return connection.getresponse().status
        return None

    def kill(self, index):
        self.processes[index].kill()
        self.processes[index].wait()
        self.processes[index] = None

    def signal(self, index, number):
        self.processes[index].send_signal(number)

    def cpu_seconds(self):
        """User and system time of every node that is alive so far."""
        times = []
        for process in filter(None, self.processes):
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            times.append((int(fields[11]) + int(fields[12])) / TICKS)
        return times

    def wait_idle(self):
        """Waits until the nodes use less than a twentieth of a core: what a fill or a fault left behind is done."""
        def is_idle():
            before = sum(self.cpu_seconds())
            time.sleep(1)
            return sum(self.cpu_seconds()) - before < 0.05
        wait_for("the nodes are idle", is_idle, 300)

    def memory(self, index, field):
        """`VmRSS`, or `VmHWM`, its peak, in MiB."""
        status = pathlib.Path(f"/proc/{self.processes[index].pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1024


class BlackHole:
    """Takes a dead node's port and swallows connection attempts: a listener whose queue is full drops every SYN."""

    def __init__(self, port):
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(0)
        self.queued = []
        with contextlib.suppress(TimeoutError):
            while True:
                self.queued.append(socket.create_connection(("127.0.0.1", port), timeout=0.3))

    def close(self):
        for open_socket in [*self.queued, self.listener]:
            open_socket.close()


def wrk(script, url, seconds, connections, threads, keys, value_bytes, first=0):
    """One run of wrk: what its script prints, with its own processor time. Fails on any error."""
    command = ["wrk", "-t", threads, "-c", connections, "-d", f"{seconds}s", "--timeout", "10s"]
    command += ["-s", HERE / script, url, "--", keys, value_bytes, threads, first]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "KVORUM_BENCH": str(HERE)}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = re.search(r"^RESULT (.*)$", done.stdout, re.M)
    if not found:
        sys.exit(f"{command}\n{done.stdout}{done.stderr}")
    result = json.loads(found[1])
    if result["errors"]:
        sys.exit(f"{script}: {result['errors']} errors in {result['requests']} requests\n{done.stdout}")
    result["rate"] = result["requests"] / result["seconds"]
    result["client_cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result


def key(options):
    """The option for the client's key, where the nodes want one."""
    file = getattr(options, "key_file", None)
    return ["--key-file", file] if file else []


def bench(options, url, workload, rate, seconds, warmup=0, meanwhile=lambda run: None):
    """One run of `kvorum bench run`: its run.json. `meanwhile` is called with its process once that was started."""
    with tempfile.TemporaryDirectory(prefix="kvorum-bench-run-") as out:
        command = [options.binary, "bench", "run", "--url", url, "--workload", workload, "--rate", rate]
        command += ["--connections", options.connections, "--keys", options.keys, "--value-size", options.value]
        command += ["--duration", f"{seconds}s", "--warmup", f"{warmup}s", "--out", out, *key(options)]
        command = list(map(str, command))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            try:
                meanwhile(run)
                stdout, stderr = run.communicate()
            except BaseException:
                run.kill()
                raise
        if run.returncode:
            sys.exit(f"{command}\n{stdout}{stderr}")
        run = json.loads((pathlib.Path(out) / "run.json").read_text())
        for latencies in ["latency_ms", "service_ms", "refused_ms"]:
            run[latencies] = {name: math.nan if ms is None else ms for name, ms in run[latencies].items()}
        return run


def knee(options, url, workload, seconds):
    """The highest sustained rate at p99 <= 50 ms, by `kvorum bench knee`."""
    with tempfile.TemporaryDirectory(prefix="kvorum-bench-knee-") as out:
        command = [options.binary, "bench", "knee", "--url", url, "--workload", workload, "--duration", f"{seconds}s"]
        command += ["--warmup", "1s", "--connections", options.connections, "--keys", options.keys]
        command += ["--value-size", options.value, "--out", out, *key(options)]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        found = pathlib.Path(out) / "knee.json"
        rate = json.loads(found.read_text())["knee_rate"] if found.exists() else None
        # Half of a knee that missed its objective is code 1, too.
        if done.returncode > 1 or rate is None:
            sys.exit(f"{command}\n{done.stdout}{done.stderr}")
        return rate


def metric(nodes, index, name):
    """The sum of a metric over its labels."""
    connection = http.client.HTTPConnection("127.0.0.1", nodes.ports[index], timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics", headers=nodes.headers)
        lines = connection.getresponse().read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + "{", name + " ")))


def wait_for(what, condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited in vain: {what}")
        time.sleep(0.1)


def fill(nodes, connections, keys, value_bytes):
    """Writes every key: each run goes on before what the one before it may have left unanswered."""
    first = 0
    while first < keys + connections:
        first += wrk("put.lua", nodes.url(0), 5, connections, 1, keys, value_bytes, first)["requests"] - connections


def finish(options, results):
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
