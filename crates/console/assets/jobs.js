// Jobs of the lab: what runs, how far it is, and what came of it, opened inside the page.

import { html, useEffect, useRef, useState } from "./preact.js";
import { json, remove } from "./api.js";
import { figure, visible, visibleLines } from "./format.js";
import { store } from "./store.js";
import { Action, Bar, State, Table } from "./parts.js";

const EVERY_MS = 1000;
const LINES_MAX = 60;

/** @type {Record<string, import("./parts.js").Mood>} */
const MOODS = { running: "busy", done: "good", failed: "bad", stopped: "off" };

/** @returns {[Job[], () => void]} */
export function useJobs() {
  const [jobs, setJobs] = useState(/** @type {Job[]} */ ([]));
  const ask = useRef(() => {});
  useEffect(() => {
    if (!store.may("lab")) return undefined;
    let ended = false;
    ask.current = () => void json("/api/lab/jobs").then((answer) => { if (!ended) setJobs(answer); }, () => {});
    ask.current();
    const timer = setInterval(() => { if (!document.hidden) ask.current(); }, EVERY_MS);
    return () => {
      ended = true;
      clearInterval(timer);
    };
  }, [store.session?.level]);
  return [jobs, () => ask.current()];
}

/** One value of a line of progress. @param {unknown} value @returns {string} */
export function said(value) {
  if (typeof value === "number") return figure(value);
  if (value === null || value === undefined || (Array.isArray(value) && value.length === 0)) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return visible(typeof value === "object" ? JSON.stringify(value) : String(value));
}

/** @param {{progress: Record<string, unknown> | null}} props */
function Progress({ progress }) {
  if (!progress) return html`<span class="dim">–</span>`;
  const share = Number(progress.elapsed_s) / Number(progress.seconds);
  return html`${share >= 0 && html`<${Bar} share=${share} /> `}<span class="progress">${Object.entries(progress).filter(([name]) => name !== "said").map(([name, value]) => html`<span key=${name}><span class="dim">${name.replaceAll("_", " ")}</span> ${said(value)}</span> `)}</span>`;
}

/** The lines of progress of a job so far, of which the page sees one a second. @param {{job: Job}} props */
function Probes({ job }) {
  const seen = useRef(/** @type {Record<string, unknown>[]} */ ([]));
  const last = seen.current[seen.current.length - 1];
  if (job.progress && JSON.stringify(last) !== JSON.stringify(job.progress)) seen.current = [...seen.current, job.progress].slice(-LINES_MAX);
  const lines = seen.current.filter((line) => Object.keys(line).some((name) => /rate|p99/.test(name)));
  if (lines.length === 0) return null;
  const names = Array.from(new Set(lines.flatMap((line) => Object.keys(line)))).sort((a, b) => place(a) - place(b));
  return html`<details open=${job.state === "running"}><summary>Probes of job ${job.id}</summary><${Table} title=${`Probes of job ${job.id}`} head=${names.map((name) => name.replaceAll("_", " "))} rows=${lines.map((line, index) => ({ key: index, cells: names.map((name) => said(line[name])) })).reverse()} /></details>`;
}

/** What the program has printed, where it has. @param {{job: Job}} props */
function Words({ job }) {
  const words = job.progress?.said;
  return typeof words === "string" ? html`<details><summary>What job ${job.id} printed</summary><pre class="value" tabindex="0" aria-label=${`What job ${job.id} printed`}>${visibleLines(words)}</pre></details>` : null;
}

/** Columns that are read first. */
const FIRST = ["step", "rate", "connections", "rate_achieved", "p50_ms", "p99_ms", "passed", "missed"];

/** @param {string} name */
const place = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);

/** @param {{jobs: Job[], onChanged: () => void}} props */
export function Jobs({ jobs, onChanged }) {
  const [open, setOpen] = useState(/** @type {string | number | null} */ (null));
  const rows = jobs.map((job) => ({ key: job.id, class: job.id === open ? "chosen" : "", cells: [
    String(job.id), job.kind, html`<${State} mood=${MOODS[job.state] ?? "off"}>${job.state}<//>${job.error && html`<div class="why">${visible(job.error)}</div>`}`, html`<${Progress} progress=${job.progress} />`,
    html`${job.open && html`<button type="button" class="main" aria-expanded=${job.id === open} onClick=${() => setOpen(job.id === open ? null : job.id)}>${job.id === open ? "Close" : "Open"}<span class="sr"> job ${job.id}</span></button> `}
      ${job.state === "running" && html`<${Action} action=${() => stop(job).then(onChanged)}>Stop<span class="sr"> job ${job.id}</span><//>`}`,
  ] }));
  const shown = jobs.find((job) => job.id === open && job.open);
  return html`<${Table} title="Jobs" head=${["job", "kind", "state", "progress", "what to do"]} rows=${rows} empty="Nothing was started yet." />${jobs.map((job) => html`<${Probes} key=${job.id} job=${job} /><${Words} key=${`words ${job.id}`} job=${job} />`)}
    ${shown && html`<iframe class="report" title=${`What job ${shown.id} (${shown.kind}) found`} sandbox="allow-scripts" src=${shown.open}></iframe>`}`;
}

/** @param {Job} job @returns {Promise<void>} */
const stop = (job) => remove(`/api/lab/jobs/${job.id}`);
