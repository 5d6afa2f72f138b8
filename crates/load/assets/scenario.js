const { report, less, rows, warnings, laws, cost, evenness } = data;
const short = (workload) => workload.split(":")[0];
place("title").textContent = `${report.name}: ${report.title}`;
place("asked").textContent =
  `${new Date(report.started_unix_ms).toISOString()} · ${report.machine.processor}, ${report.machine.cores} cores, ${report.machine.system} · ` +
  `version ${report.version}, commit ${report.commit} · ${report.command}`;
place("about").textContent = report.about;
place("less").textContent = less ?? "";
warn(warnings);
table("summary", [
  ["", "workload", "whose", "at", "rate/s", "mean", "p50", "p90", "p99", "p99.9", "max", ""],
  ...rows.map((row) => [`${row.nodes} nodes`, row.workload, row.whose, row.at, row.rate ? number(row.rate, 0) : "–", ...row.latency_ms.map((value) => number(value)), row.note]),
]);

const knees = report.clusters.flatMap((cluster) => cluster.knees.map((knee) => ({ cluster, ...knee })));
const sizes = [...new Set(report.clusters.map((cluster) => cluster.nodes))].sort((a, b) => a - b);
const published = (workload) => sizes.map((nodes) => rows.find((row) => row.whose === "report" && row.at === "knee" && row.nodes === nodes && row.workload === workload)?.rate ?? null);
const lines = [];
for (const workload of [...new Set(knees.map((knee) => knee.workload))]) {
  for (const name of [...new Set(knees.filter((knee) => knee.workload === workload).map((knee) => sizes.length > 1 ? "" : knee.cluster.name))]) {
    const found = sizes.map((nodes) => knees.find((knee) => knee.workload === workload && knee.cluster.nodes === nodes && (!name || knee.cluster.name === name))?.knee_rate ?? null);
    lines.push([`${short(workload)} ${name}`, found, { points: { show: true } }]);
  }
  if (published(short(workload)).some((rate) => rate != null)) lines.push([`${short(workload)}, report`, published(short(workload)), { points: { show: true }, dash: [6, 4] }]);
}
chart("knees", sizes, lines, { x: "nodes", y: "knee/s" });
place("laws").textContent = laws.join(". ");

const quantiles = [["p50", 2], ["p90", 10], ["p99", 100], ["p999", 1000], ["p9999", 10000]];
chart("percentiles", quantiles.map(([, x]) => x), knees.filter((knee) => knee.points.length).map((knee) =>
  [`${knee.cluster.name} ${short(knee.workload)}`, quantiles.map(([name]) => knee.points[0].latency_ms[name]), { points: { show: true } }]),
  { log: true, x: "1/(1-p)", y: "ms" });

table("cost", cost);
table("evenness", [
  ["", "what", "most", "least", "per node"],
  ...evenness.map(([whose, even]) =>
    [whose, even.what, number(even.max_over_mean, 3), number(even.min_over_mean, 3), even.per_node.map((value) => number(value, 0)).join("  ")]),
]);
for (const contest of report.contests) {
  const title = document.createElement("p");
  title.textContent = `${contest.workload} at ${number(contest.rate)}/s, A ${contest.comparison.a}, B ${contest.comparison.b}: ${contest.comparison.verdict}`;
  place("contests").append(title);
  const { errors: [a, b], doubts, unlike } = contest.comparison;
  const failed = a || b ? [`A had ${number(a)} errors and timeouts, B ${number(b)}: latencies are of what succeeded`] : [];
  const asked = unlike.length ? [`The runs were not asked for the same: ${unlike.join("; ")}`] : [];
  for (const said of [...failed, ...doubts, ...asked]) {
    const line = document.createElement("p");
    line.className = "warning";
    line.textContent = said;
    place("contests").append(line);
  }
  table("contests", [
    ["", "A", "B", contest.comparison.paired ? "change of pairs" : "change", "95 % interval", "p"],
    ...contest.comparison.rows.map((row) => [row.figure, number(row.a, 3), number(row.b, 3), `${number((row.ratio - 1) * 100, 1)} %`,
      `${number((row.ratio_low - 1) * 100, 1)} … ${number((row.ratio_high - 1) * 100, 1)} %`, number(row.probability, 3)]),
  ]);
}
for (const knee of knees) {
  for (const profile of knee.profiles) {
    const item = document.createElement("li");
    const name = `${knee.cluster.name} ${short(knee.workload)}, ${profile.point}: ${profile.kind}`;
    if (profile.missing) {
      item.textContent = `${name}: no profile: ${profile.missing}`;
    } else {
      const link = document.createElement("a");
      link.href = `${profile.dir}/${profile.kind}.svg`;
      link.textContent = name;
      item.append(link);
    }
    place("profiles").append(item);
  }
}
