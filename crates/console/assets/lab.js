// Lab: break nodes of `kvorum dev` and see what it costs, take profiles, and measure.

import { html, useState } from "./preact.js";
import { post } from "./api.js";
import { store } from "./store.js";
import { Action, NodeName, NotAllowed, Panel, State, namesOf } from "./parts.js";
import { Availability, Canary } from "./canary.js";
import { Jobs, useJobs } from "./jobs.js";
import { BenchForm, ProfileForm } from "./lab-forms.js";

/** @param {string} line */
const order = (line) => post("/api/lab/dev", { line }).then((answer) => {
  if (answer.ok === false) throw new Error(answer.error);
});

/** @type {Record<string, import("./parts.js").Mood>} */
const MOODS = { running: "good", paused: "warning", dead: "bad" };

/** @param {{node: DevNode, name: string}} props */
function Orders({ node, name }) {
  const [ms, setMs] = useState("200");
  const [skew, setSkew] = useState("5");
  const button = (/** @type {string} */ verb, /** @type {string} */ title, kind = "") => html`<${Action} kind=${kind} action=${() => order(`${verb} ${node.number}`)}>${title}<span class="sr"> node ${name}</span><//>`;
  const { number, state } = node;
  return html`<span class="orders">${state === "running" && html`${button("kill", "Kill", "danger")}${button("pause", "Pause")}`}${state === "paused" && html`${button("resume", "Resume", "main")}${button("kill", "Kill", "danger")}`}${state === "dead" && button("start", "Start", "main")}
    ${state === "running" && html`<span class="pair"><input class="short" type="number" min="0" aria-label=${`Milliseconds for node ${name}`} value=${ms} onInput=${(/** @type {any} */ event) => setMs(event.target.value)} /><${Action} action=${() => order(`slow ${number} ${ms}`)}>ms slower<span class="sr">, node ${name}</span><//>${node.slow_ms > 0 && html`<${Action} action=${() => order(`slow ${number} 0`)}>undo<span class="sr"> slow, node ${name}</span><//>`}</span>
    <span class="pair"><input class="short" type="number" aria-label=${`Seconds for the clock of node ${name}`} value=${skew} onInput=${(/** @type {any} */ event) => setSkew(event.target.value)} /><${Action} action=${() => order(`skew ${number} ${skew}`)}>s clock<span class="sr"> of node ${name}</span><//>${node.skew_s !== 0 && html`<${Action} action=${() => order(`skew ${number} 0`)}>undo<span class="sr"> clock, node ${name}</span><//>`}</span>`}</span>`;
}

/** @param {{frame: Frame, names: Map<string, string>}} props */
function Failures({ frame, names }) {
  if (!frame.dev) return html`<p class="note">Nodes can be killed here where <code>kvorum dev</code> runs them.</p>`;
  return html`<ul class="failures">${frame.dev.nodes.map((node) => {
    const name = names.get(node.url)?.split(" ")[0] ?? String(node.number);
    const extra = [node.slow_ms > 0 && `${node.slow_ms} ms slower`, node.skew_s !== 0 && `clock ${node.skew_s > 0 ? "+" : ""}${node.skew_s} s`].filter(Boolean).join(", ");
    return html`<li key=${node.number}><span class="who">${node.number}. <${NodeName} url=${node.url} names=${names} /></span><span class="what"><${State} mood=${MOODS[node.state] ?? "off"}>${node.state}<//>${extra && html`<span class="why"> ${extra}</span>`}</span><${Orders} node=${node} name=${name} /></li>`;
  })}</ul>
    <p class="dim small">The same from a terminal: <code>kvorum dev kill 2</code>, <code>start 2</code>, <code>slow 2 200</code>, <code>skew 2 5</code>.</p>`;
}

/** @param {{frame: Frame}} props */
export function Lab({ frame }) {
  const names = namesOf(frame);
  const [jobs, again] = useJobs();
  if (!store.may("lab")) return html`<div class="grid"><${Panel} title="Lab" wide><${NotAllowed} level="lab" /><p class="dim">At that level this page kills and slows nodes of <code>kvorum dev</code>, writes and reads all the time to see whether anything is lost, takes flame graphs, and looks for the knee.</p><//></div>`;
  return html`<div class="grid"><${Panel} title="Failures" wide><${Failures} frame=${frame} names=${names} /><//>
    <${Panel} title="Canary"><${Canary} frame=${frame} /><//><${Panel} title="Availability"><${Availability} seconds=${store.availability} /><//>
    <${Panel} title="Flame graph"><${ProfileForm} jobs=${jobs} onStarted=${again} /><//><${Panel} title="Measure"><${BenchForm} jobs=${jobs} onStarted=${again} /><//>
    <${Panel} title="Jobs" wide><${Jobs} jobs=${jobs} onChanged=${again} /><//></div>`;
}
