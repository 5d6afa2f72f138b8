const percentiles = ["p50", "p90", "p99", "p999", "max"];
place("title").textContent = `Knee of ${data.workload}: ${data.knee_rate == null ? "none" : number(data.knee_rate) + "/s"} → ${data.targets.join(", ")}`;
place("asked").textContent = `Objective: at least 99 % of the rate, no errors, ${data.objective}`;
function told(id, name, probes) {
  table(id, [
    [name, "asked/s", "achieved/s", "seconds", "p50 ms", "p99", "p99.9", "errors", "result"],
    ...probes.map((probe) => ["", number(probe.rate_asked), number(probe.rate_achieved, 0), number(probe.duration_s, 1),
      number(probe.latency_ms.p50, 3), number(probe.latency_ms.p99, 3), number(probe.latency_ms.p999, 3), number(probe.errors),
      [probe.missed ?? "ok", probe.generator_limit ? "the generator is the limit" : null, probe.stolen, probe.slow_commits, probe.debt_bounded === false ? "debt grew" : null].filter(Boolean).join("; ")]),
  ]);
}
const warnings = [];
if (data.interrupted) warnings.push("The search was interrupted: this is what there was until then.");
if (data.generator_limit) warnings.push(`The generator ended the search, not the target: ${data.generator_limit}`);
if (data.half?.missed) warnings.push(`Half of it missed the objective, so the knee is not one: ${data.half.missed}`);
if (data.hint) warnings.push(data.hint);
if (data.sustained === false) warnings.push("The knee is not sustained: debt was still growing, or a lower rate is what lasts.");
warn(warnings);
const at = (name, rate, latency) => [name, number(rate, 0), ...percentiles.map((p) => number(latency?.[p], 3))];
table("summary", [
  ["", "rate/s", "p50 ms", "p90", "p99", "p99.9", "max"],
  at("knee", data.knee_rate, data.latency_ms),
  at("half of it", data.half?.rate, data.half?.latency_ms),
  ...(data.sustained_knee ? [at(`sustained for ${number(data.sustained_knee.seconds)} s`, data.sustained_knee.rate, data.sustained_knee.latency_ms)] : []),
]);
const long = data.sustained_knee;
if (long) {
  const MIB = 2 ** 20;
  const most = (node, name, unit = 1) => `${number(node.last[name] == null ? null : node.last[name] / unit, 0)} (${number(node.most[name] == null ? null : node.most[name] / unit, 0)})`;
  table("sustained", [["", "from s", "to s", "p50 ms", "p99", "max", "errors"],
    ...long.windows.map((window, index) => [index ? "" : "windows at the sustained knee", number(window.from_s), number(window.to_s), number(window.latency_ms.p50, 3),
      number(window.latency_ms.p99, 3), number(window.latency_ms.max, 3), number(window.errors)])]);
  table("debt", [["debt at the end (most)", "pending MiB", "level 0", "memtables", "stalled s", "written per byte given", "bounded"],
    ...long.debt.map((node) => [node.url, most(node, "compaction_pending_bytes", MIB), most(node, "level0_files"), most(node, "memtables_waiting"),
      number(node.stall_seconds, 1), number(node.write_amplification), node.bounded == null ? "not known" : node.bounded ? "yes" : "NO"])]);
  told("long-probes", "long probes", long.probes);
}
const probes = [...data.probes].sort((a, b) => a.rate_achieved - b.rate_achieved);
chart("curve", probes.map((probe) => probe.rate_achieved),
  ["p50", "p99", "p999"].map((p) => [`${p}, ms`, probes.map((probe) => probe.latency_ms[p]), { points: { show: true } }]),
  { x: "requests/s achieved", y: "ms" });
const law = data.scalability;
place("law").textContent = law ? `λ = ${number(law.lambda)}/s, σ = ${law.sigma.toPrecision(3)}, κ = ${law.kappa.toPrecision(3)}, R² = ${number(law.r_squared, 3)}: ${law.verdict}` : "not fitted";
const points = law?.points ?? [];
const predicted = points.map(({ n }) => law.lambda * n / (1 + law.sigma * (n - 1) + law.kappa * n * (n - 1)));
chart("scalability", points.map((point) => point.n),
  [["measured/s", points.map((point) => point.rate), { points: { show: true } }], ["law/s", predicted, { dash: [6, 4] }]],
  { x: "connections", y: "per second" });
told("probes", "", data.probes);
