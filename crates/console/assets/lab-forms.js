// What can be started in the lab: a profile of a node, and measurements of the cluster.

import { html, useState } from "./preact.js";
import { post } from "./api.js";
import { Action, Choice, NodeSelect } from "./parts.js";

/** @param {{id: string, title: string, value: string, onInput: (value: string) => void, type?: string, hint?: string}} props */
function Field({ id, title, value, onInput, type = "text", hint = "" }) {
  return html`<label for=${id}>${title} <input id=${id} class="short" type=${type} placeholder=${hint} value=${value} onInput=${(/** @type {any} */ event) => onInput(event.target.value)} /></label>`;
}

/** @param {{jobs: Job[], onStarted: () => void}} props */
export function ProfileForm({ jobs, onStarted }) {
  const [node, setNode] = useState(0);
  const [kind, setKind] = useState("cpu");
  const [seconds, setSeconds] = useState("10");
  const [against, setAgainst] = useState("");
  const earlier = jobs.filter((job) => job.state === "done" && /profile|cpu|alloc|lock/.test(job.kind));
  const start = async () => {
    await post("/api/lab/profile", { node, kind, seconds: Number(seconds), against: earlier.find((job) => String(job.id) === against)?.id ?? null });
    onStarted();
  };
  return html`<div class="form"><${NodeSelect} id="profile-node" value=${node} onChange=${setNode} />
    <${Choice} title="What to count" value=${kind} onChange=${setKind} choices=${[{ value: "cpu", title: "time" }, { value: "alloc", title: "memory taken" }, { value: "lock", title: "waiting" }]} />
    <${Field} id="profile-seconds" title="Seconds" type="number" value=${seconds} onInput=${setSeconds} />
    <label for="profile-against">Difference to <select id="profile-against" value=${against} onChange=${(/** @type {any} */ event) => setAgainst(event.target.value)}><option value="">nothing</option>${earlier.map((job) => html`<option value=${String(job.id)}>job ${job.id}</option>`)}</select></label></div>
    <${Action} kind="main" action=${start} done="started: see Jobs">Take a flame graph<//>`;
}

/** The fields of each command: their names are those of the command line. @type {Record<string, {name: string, title: string, hint: string}[]>} */
const FIELDS = {
  knee: [{ name: "duration", title: "Each probe lasts", hint: "30s" }, { name: "warmup", title: "Warm-up", hint: "5s" }, { name: "objective", title: "What must hold", hint: "p99=50ms" }, { name: "sustained", title: "And for as long as", hint: "not asked" }],
  run: [{ name: "rate", title: "Requests a second", hint: "1000" }, { name: "duration", title: "Duration", hint: "30s" }],
  compare: [],
};
const COMMON = [{ name: "workload", title: "Workload", hint: "put" }, { name: "keys", title: "Keys", hint: "200000" }, { name: "value-size", title: "Size of values", hint: "100" }, { name: "connections", title: "Connections", hint: "64" }];

/** Two earlier runs to compare. @param {{jobs: Job[], values: Record<string, string>, onChange: (change: Record<string, string>) => void}} props */
function Sides({ jobs, values, onChange }) {
  const runs = jobs.filter((job) => job.state === "done" && job.kind.endsWith("run"));
  const side = (/** @type {string} */ name) => html`<label for=${`bench-${name}`}>Run ${name.toUpperCase()} <select id=${`bench-${name}`} value=${values[name] ?? ""} onChange=${(/** @type {any} */ event) => onChange({ [name]: event.target.value })}><option value="">choose</option>${runs.map((job) => html`<option value=${String(job.id)}>job ${job.id}</option>`)}</select></label>`;
  return html`<div class="form">${side("a")}${side("b")}</div>${runs.length < 2 && html`<p class="dim small">Compares two runs: start two at a constant rate first.</p>`}`;
}

/** @param {{jobs: Job[], onStarted: () => void}} props */
export function BenchForm({ jobs, onStarted }) {
  const [command, setCommand] = useState("knee");
  const [values, setValues] = useState(/** @type {Record<string, string>} */ ({}));
  const fields = command === "compare" ? [{ name: "a" }, { name: "b" }] : [...(FIELDS[command] ?? []), ...COMMON];
  const start = async () => {
    const named = fields.flatMap(({ name }) => (values[name] ? [[name, values[name]]] : []));
    await post("/api/lab/bench", { command, arguments: Object.fromEntries(named) });
    onStarted();
  };
  return html`<${Choice} title="Command" value=${command} onChange=${setCommand} choices=${[{ value: "knee", title: "find the knee" }, { value: "run", title: "constant rate" }, { value: "compare", title: "compare" }]} />
    ${command === "compare" ? html`<${Sides} jobs=${jobs} values=${values} onChange=${(/** @type {Record<string, string>} */ change) => setValues({ ...values, ...change })} />` : html`<div class="form">${[...(FIELDS[command] ?? []), ...COMMON].map(({ name, title, hint }) => html`<${Field} key=${name} id=${`bench-${name}`} title=${title} hint=${hint} value=${values[name] ?? ""} onInput=${(/** @type {string} */ value) => setValues({ ...values, [name]: value })} />`)}</div>`}
    <p class="dim small">Runs <code>kvorum bench ${command}</code> on this machine, against all nodes. What is empty has its default, shown in grey.</p>
    <${Action} kind="main" action=${start} done="started: see Jobs">Start<//>`;
}
