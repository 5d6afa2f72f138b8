const { run, host, slow_commits, unsent, hint, latency, service } = data;
place("title").textContent = `${run.workload} at ${run.rate_asked === "max" ? "the highest rate" : number(run.rate_asked) + "/s"} → ${run.targets.join(", ")}`;
place("asked").textContent =
  `${new Date(run.started_unix_ms).toISOString()} · ${number(run.duration_s)} s after ${number(run.warmup_s)} s of warm-up · ` +
  `${run.connections} connections, ${run.threads} threads, pipeline ${run.pipeline}${run.batch > 1 ? `, batches of ${run.batch}` : ""} · ${number(run.keys)} keys, ${run.key_order} · ` +
  `values ${run.value_size} B${run.compressible ? ", compressible" : ""} · ack/from ${run.ack ?? "default"}/${run.from ?? "default"}`;
const warnings = [];
if (run.generator.limit) warnings.push(`The generator was the limit, not the target: ${run.generator.limit}`);
if (run.generator.late) warnings.push(`The generator was late, and the latencies are partly its own: ${run.generator.late}`);
warnings.push(...host);
if (slow_commits) warnings.push(`Nodes: ${slow_commits}`);
if (run.interrupted) warnings.push("The run was interrupted: this is what there was until then.");
if (run.unanswered) warnings.push(`${number(run.unanswered)} requests had no answer yet: their latencies are missing.`);
if (run.unsent) warnings.push(`${number(run.unsent)} requests were due and never sent: their latencies are missing.`);
if (unsent) warnings.push(unsent);
if (hint) warnings.push(hint);
warn(warnings);
table("summary", [
  ["", "achieved/s", "requests", "p50 ms", "p90", "p99", "p99.9", "p99.99", "max", "mean"],
  ["from due", number(run.rate_achieved, 0), number(run.requests), ...["p50", "p90", "p99", "p999", "p9999", "max", "mean"].map((p) => number(run.latency_ms[p], 3))],
  ...(run.batch > 1 ? [["operations in batches", number(run.operation_rate_achieved, 0), number(Object.values(run.outcomes).reduce((sum, count) => sum + count, 0)), "", "", "", "", "", "", ""]] : []),
  ["from sent", "", "", ...["p50", "p90", "p99", "p999", "p9999", "max", "mean"].map((p) => number(run.service_ms[p], 3))],
  ...Object.entries(run.operations).map(([name, row]) => [name, "", number(row.requests), ...["p50", "p90", "p99", "p999", "p9999", "max", "mean"].map((p) => number(row.latency_ms[p], 3))]),
]);

const MIB = 2 ** 20;
if (run.soak) {
  const answer = (passed) => passed == null ? "?" : passed ? "yes" : "NO";
  table("soak", [[`Soak: ${run.soak.passed ? "passed" : "NOT PASSED"}`, "found", "enough"],
    ...run.soak.verdict.map((clause) => [clause.asked, clause.found, answer(clause.passed)])]);
  const slow = run.soak.slow_seconds;
  if (slow.length) table("slow", [
    [`${slow.length} of ${run.soak.seconds} seconds over ${run.soak.objective}`, "p99 ms", "max", "taken by the host, %", "slow commits", "stalled s", "pending MiB", "level 0", "memtables"],
    // run.json has all of them.
    ...slow.slice(0, 100).flatMap((second) => [
      [`at ${second.at_s} s`, number(second.latency_ms.p99, 1), number(second.latency_ms.max, 1), number(second.stolen_share == null ? null : second.stolen_share * 100, 0), "", "", "", "", ""],
      ...second.nodes.map((node) => [node.url, "", "", "", number(node.slow_commits), number(node.stall_seconds),
        number(node.compaction_pending_bytes == null ? null : node.compaction_pending_bytes / MIB, 0), number(node.level0_files), number(node.memtables_waiting)]),
    ]),
  ]);
}

// Both curves over the union of their steps.
const xs = [...new Set([...latency, ...service].map(([x]) => x))].sort((a, b) => a - b);
const along = (curve) => { const known = new Map(curve); return xs.map((x) => known.get(x) ?? null); };
chart("percentiles", xs, [["from due, ms", along(latency)], ["from sent, ms", along(service), { dash: [6, 4] }]], { log: true, x: "1/(1-p)", y: "ms" });

const seconds = run.seconds.map((_, index) => index);
const column = (name) => run.seconds.map((second) => second[name]);
// A second without an answer has no latency.
const latencies = (name) => run.seconds.map((second) => second.requests ? second[name] : null);
const throughput = [["answers/s", column("requests")], ["errors/s", column("errors")]];
if (run.seconds.some((second) => second.shed)) throughput.push(["503/s", column("shed")]);
if (run.rate_asked !== "max") throughput.push(["asked/s", seconds.map((second) => second < run.duration_s ? run.rate_asked : null), { dash: [6, 4] }]);
chart("throughput", seconds, throughput, { y: "per second", mean: true });
chart("latency", seconds, [
  ...["p50", "p90", "p99", "max"].map((name) => [name, latencies(name)]),
  ...(run.seconds.some((second) => second.shed) ? [["p99 of 503", column("shed_p99")]] : []),
], { y: "ms" });
const stolen = column("stolen_share").map((share) => share === null ? null : share * 100);
chart("stolen", seconds, stolen.some((share) => share !== null) ? [["taken", stolen]] : [], { y: "%" });
const commits = column("slow_commits");
chart("commits", seconds, commits.some((count) => count !== null) ? [["commits", commits]] : [], { y: "commits" });

const times = [...new Set(run.nodes.flatMap((node) => node.seconds.map((second) => Math.round(second.at_s))))].sort((a, b) => a - b);
const byNode = (value) => run.nodes.filter((node) => node.seconds.length).map((node) => {
  const known = new Map(node.seconds.map((second) => [Math.round(second.at_s), value(second)]));
  return [node.url, times.map((time) => known.get(time) ?? null)];
});
const told = (id, value, options) => chart(id, times, byNode(value).filter(([, values]) => values.some((of) => of != null)), options);
told("pending", (second) => second.compaction_pending_bytes == null ? null : second.compaction_pending_bytes / MIB, { y: "MiB" });
told("level0", (second) => second.level0_files, { y: "files" });
told("memtables", (second) => second.memtables_waiting, { y: "memtables" });
told("stalled", (second) => second.stall_seconds, { y: "s in a second" });
told("amplification", (second) => second.write_amplification, { y: "since the begin" });
const most = (debt, name, unit = 1) => `${number(debt.last[name] == null ? null : debt.last[name] / unit, 0)} (${number(debt.most[name] == null ? null : debt.most[name] / unit, 0)})`;
table("debt", [
  ["at the end (most)", "pending MiB", "level 0", "memtables", "stalled s", "written per byte given", "bounded"],
  ...run.nodes.filter((node) => node.debt).map(({ url, debt }) => [url, most(debt, "compaction_pending_bytes", MIB), most(debt, "level0_files"),
    most(debt, "memtables_waiting"), number(debt.stall_seconds, 1), number(debt.write_amplification),
    debt.bounded == null ? "not known" : debt.bounded ? "yes" : `NO: ${(debt.grew ?? []).join("; ")}`]),
]);
const windows = run.windows ?? [];
chart("windows", windows.map((window) => window.from_s),
  ["p50", "p99", "max"].map((name) => [name, windows.map((window) => window.latency_ms[name])]), { y: "ms" });
chart("cpu", times, byNode((second) => second.cpu), { y: "processors", mean: true });
chart("memory", times, byNode((second) => second.resident_bytes / 2 ** 20), { y: "MiB" });

table("statuses", [
  ["", "count"],
  ...Object.entries(run.statuses).map(([status, count]) => [`answered ${status}`, number(count)]),
  ...Object.entries(run.outcomes).map(([status, count]) => [`operations answered ${status}`, number(count)]),
  ...Object.entries(run.errors).filter(([name]) => isNaN(name)).map(([name, count]) => [`no answer: ${name}`, number(count)]),
  ["timeouts", number(run.timeouts)], ["sent more than 1 ms late", number(run.late_sends)], ["never sent", number(run.unsent)],
  ["bytes received", number(run.bytes_read)], ["bytes sent", number(run.bytes_written)],
]);
table("nodes", [
  ["", "CPU µs", "system calls", "sleeps", "allocated B", "blocks", "disk B", "commits", "ms each", "peak MiB", "from"],
  ...run.nodes.map((node) => [node.url, number(node.cpu_us_per_request), number(node.syscalls_per_request),
    number(node.sleeps_per_request), number(node.allocated_bytes_per_request, 0), number(node.block_reads_per_request),
    number(node.disk_read_bytes_per_request, 0), number(node.commits_per_request, 3), number(node.commit_ms, 3), number(node.resident_bytes_max / 2 ** 20, 1), node.source]),
  ["generator", number(run.generator.cpu_us_per_request), "", "", "", "", "", "", "", "", "itself"],
]);
