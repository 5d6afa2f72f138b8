// The ring: 64 × 64 partitions on a canvas, and where a key is among them.

import { html, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { json } from "./api.js";
import { count } from "./format.js";
import { Choice, Key, NodeName, NodeSelect, Panel, State, Table, Trouble } from "./parts.js";
import { members } from "./verdict.js";
import { store } from "./store.js";

const SIDE = 64;
const CELL = 6;

/** @typedef {"primary" | "replica" | "vote"} Kind */

/** @param {string} name */
const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** What a cell's colour says: an index into the colours of the kind. Pure.
 * @param {Placement} placement @param {Kind} kind @param {number} node @param {boolean[]} serves @param {number} partition @returns {number} */
export function shade(placement, kind, node, serves, partition) {
  const nodes = placement.nodes.length;
  const at = (/** @type {number} */ rank) => placement.preference[partition * nodes + rank] ?? 0;
  if (kind === "primary") return at(0);
  if (kind === "replica") {
    for (let rank = 0; rank < placement.from; rank += 1) if (at(rank) === node) return rank === 0 ? 0 : 1;
    return 2;
  }
  let serving = 0;
  for (let rank = 0; rank < placement.from; rank += 1) if (serves[at(rank)]) serving += 1;
  const quorum = Math.floor(placement.from / 2) + 1;
  return serving === placement.from ? 0 : serving >= quorum ? 1 : 2;
}

/** The colours of a kind, and what each says. @param {Placement} placement @param {Kind} kind @param {Map<string, string>} names */
function keys(placement, kind, names) {
  if (kind === "primary") return placement.nodes.map((node, index) => ({ colour: `--c${index % 10}`, title: names.get(node.url) ?? node.url }));
  if (kind === "replica") return [{ colour: "--c0", title: "the node is first" }, { colour: "--c9", title: "it is another replica" }, { colour: "--line", title: "it has no copy" }];
  return [{ colour: "--good", title: "all replicas answer" }, { colour: "--warning", title: "a majority answers" }, { colour: "--bad", title: "fewer: requests fail" }];
}

/** @param {HTMLCanvasElement} canvas @param {number[]} shades @param {string[]} colours @param {number | null} marked */
function draw(canvas, shades, colours, marked) {
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const values = colours.map(variable);
  context.clearRect(0, 0, canvas.width, canvas.height);
  shades.forEach((index, partition) => {
    context.fillStyle = values[index] ?? "";
    context.fillRect((partition % SIDE) * CELL, Math.floor(partition / SIDE) * CELL, CELL - 1, CELL - 1);
  });
  if (marked === null) return;
  context.strokeStyle = variable("--text");
  context.lineWidth = 2;
  context.strokeRect((marked % SIDE) * CELL - 2, Math.floor(marked / SIDE) * CELL - 2, CELL + 3, CELL + 3);
}

/** @param {{shades: number[], colours: string[], marked: number | null, onMark: (partition: number) => void, label: string}} props */
function Grid({ shades, colours, marked, onMark, label }) {
  const place = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const theme = document.documentElement.dataset.theme;
  useLayoutEffect(() => {
    if (place.current) draw(place.current, shades, colours, marked);
  }, [shades, colours.join(), marked, theme]);
  const onClick = (/** @type {MouseEvent} */ event) => {
    const box = /** @type {HTMLCanvasElement} */ (place.current).getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top].map((at) => Math.max(0, Math.min(SIDE - 1, Math.floor((at / box.width) * SIDE))));
    onMark(/** @type {number} */ (y) * SIDE + /** @type {number} */ (x));
  };
  return html`<canvas ref=${place} class="ring" width=${SIDE * CELL} height=${SIDE * CELL} role="img" aria-label=${label} onClick=${onClick}></canvas>`;
}

/** @param {{names: Map<string, string>, onFound: (found: Located | null) => void, found: Located | null}} props */
function Where({ names, onFound, found }) {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const [node, setNode] = useState(0);
  const ask = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      onFound(await json(`/api/nodes/${node}/layout?id=${encodeURIComponent(key)}`).then((answer) => ({ ...answer, key })));
      setProblem(null);
    } catch (error) {
      onFound(null);
      setProblem(/** @type {Error} */ (error));
    }
  };
  return html`<form class="row" onSubmit=${ask}><label for="where-key">Where is the key <input id="where-key" required autocomplete="off" value=${key} onInput=${(/** @type {any} */ event) => setKey(event.target.value)} /></label>
      <${NodeSelect} id="where-node" label="asked of" value=${node} onChange=${setNode} /><button>Find</button></form><${Trouble} problem=${problem} />
    ${found && html`<p role="status"><${Key} text=${found.key} /> has the hash <code>${found.hash}</code> and is in partition <b>${found.partition}</b>.</p>
    <ol class="replicas">${found.replicas.map((url, rank) => html`<li key=${url}><${NodeName} url=${url} names=${names} /> ${rank < found.from ? html`<${State} mood="good">${rank === 0 ? "first replica" : "replica"}<//>` : html`<${State} mood="off">no copy<//>`}</li>`)}</ol>`}`;
}

/** @param {{placement: Placement, marked: number, names: Map<string, string>, onMark: (partition: number) => void}} props */
function Partition({ placement, marked, names, onMark }) {
  const nodes = placement.nodes.length;
  const order = Array.from(placement.preference.subarray(marked * nodes, marked * nodes + Math.min(nodes, placement.from)));
  return html`<p class="row"><label for="partition">Partition <input id="partition" type="number" min="0" max=${placement.partitions - 1} value=${marked}
      onInput=${(/** @type {any} */ event) => { const at = Number(event.target.value); if (event.target.value !== "" && at >= 0 && at < placement.partitions) onMark(Math.floor(at)); }} /></label>
    <span>is on ${order.map((node, rank) => html`${rank > 0 && ", "}<${NodeName} url=${placement.nodes[node]?.url ?? ""} names=${names} />`)}</span></p>`;
}

/** @param {{frame: Frame, names: Map<string, string>, found: Located | null, onFound: (found: Located | null) => void}} props */
export function Ring({ frame, names, found, onFound }) {
  const { placement } = store;
  const [kind, setKind] = useState(/** @type {Kind} */ ("primary"));
  const [node, setNode] = useState(0);
  const [marked, setMarked] = useState(0);
  const nodes = members(frame);
  const serves = (placement?.nodes ?? []).map((one) => nodes.find((member) => member.url === one.url)?.serves ?? false);
  const shades = useMemo(() => Array.from({ length: placement?.partitions ?? 0 }, (_, partition) => shade(/** @type {Placement} */ (placement), kind, node, serves, partition)), [placement, kind, node, serves.join()]);
  if (!placement) return html`<${Panel} title="The ring"><p class="dim">The layout is not known yet: no node has given it.</p><//>`;
  const legend = keys(placement, kind, names);
  const counts = legend.map((_, index) => shades.reduce((sum, value) => sum + (value === index ? 1 : 0), 0));
  const find = (/** @type {Located | null} */ answer) => { onFound(answer); if (answer) setMarked(answer.partition); };
  return html`<${Panel} title="The ring"><div class="row"><${Choice} title="Colour by" value=${kind} onChange=${setKind} choices=${[{ value: "primary", title: "first replica" }, { value: "replica", title: "copies of a node" }, { value: "vote", title: "votes" }]} />
    ${kind === "replica" && html`<label for="ring-node">Node <select id="ring-node" value=${node} onChange=${(/** @type {any} */ event) => setNode(Number(event.target.value))}>${placement.nodes.map((one, index) => html`<option value=${index}>${names.get(one.url) ?? one.url}</option>`)}</select></label>`}</div>
    <div class="ring-and-key"><${Grid} shades=${shades} colours=${legend.map((one) => one.colour)} marked=${marked} onMark=${setMarked} label="4,096 partitions in 64 rows; the counts are in the table below" />
    <div><${Partition} placement=${placement} marked=${marked} names=${names} onMark=${setMarked} /><${Where} names=${names} found=${found} onFound=${find} />
    <details open><summary>Counts</summary><${Table} title="Partitions by colour" head=${["colour", "partitions"]} rows=${legend.map((one, index) => ({ key: one.title, cells: [html`<span class=${`key ${one.colour.slice(2)}`} aria-hidden="true"></span>${one.title}`, count(counts[index])] }))} /></details></div></div><//>`;
}
