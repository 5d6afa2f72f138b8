// A receipt as a picture: a bar for each replica on one axis of time, the deciding answer marked, and the same in words.

import { html } from "./preact.js";
import { duration } from "./format.js";
import { judged, meaning, newest } from "./receipt-model.js";
import { NodeName, State } from "./parts.js";

const WIDTH = 200;
const HEIGHT = 18;

/** @type {Record<string, {mood: import("./parts.js").Mood, word: string}>} */
const PARTS = {
  needed: { mood: "good", word: "needed" },
  extra: { mood: "off", word: "beyond what was needed" },
  failed: { mood: "bad", word: "does not count" },
  absent: { mood: "warning", word: "late, or not asked" },
};

/** @param {number} place */
const ordinal = (place) => `${place}${["th", "st", "nd", "rd"][place] ?? "th"}`;

/** @param {number} ms */
const millis = (ms) => duration(ms / 1000);

/** @param {{replica: import("./receipt-model.js").Replica, end: number, decided: number | null}} props */
function Picture({ replica, end, decided }) {
  const x = (/** @type {number} */ ms) => 2 + (WIDTH - 6) * (end > 0 ? Math.min(1, ms / end) : 0);
  const length = replica.ms === null ? WIDTH - 4 : Math.max(2, x(replica.ms) - 2);
  return html`<svg class=${`receipt-bar ${replica.part}`} viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
    <line class="axis" x1="2" x2=${WIDTH - 2} y1=${HEIGHT - 1} y2=${HEIGHT - 1} /><rect x="2" y="4" width=${length} height="10" />
    ${decided !== null && html`<line class="decided" x1=${x(decided)} x2=${x(decided)} y1="0" y2=${HEIGHT} />`}</svg>`;
}

/** @param {{replica: import("./receipt-model.js").Replica, highest: string | null}} props */
function Words({ replica, highest }) {
  const old = replica.version && highest && replica.outcome !== "absent" && replica.version < highest;
  return html`<span class="outcome"><b>${replica.outcome}</b> <span class="dim small">${meaning(replica.outcome)}</span>
    ${replica.version && html` <code class="version">${replica.version}</code>`}${old && html` <${State} mood="warning">an older version<//>`}</span>`;
}

/** A receipt as a picture.
 * @param {{lines: ReceiptLine[], ack: number, names: Map<string, string>, scale?: number, title: string}} props scale: the end of the axis in ms. */
export function Receipt({ lines, ack, names, scale = 0, title }) {
  if (lines.length === 0) return html`<p class="dim">The answer has no receipt.</p>`;
  const { replicas, decided } = judged(lines, ack);
  const end = Math.max(scale, ...replicas.map((replica) => replica.ms ?? 0));
  const order = replicas.filter((replica) => replica.part === "needed").sort((a, b) => (a.ms ?? 0) - (b.ms ?? 0));
  const highest = newest(lines);
  return html`<div class="receipt"><p class="axis-head dim small" aria-hidden="true"><span>0</span><span>${millis(end)}</span></p><ul aria-label=${title}>${replicas.map((replica) => {
    const { mood, word } = PARTS[replica.part] ?? { mood: "off", word: replica.part };
    return html`<li key=${replica.node}><span class="who"><${NodeName} url=${replica.node} names=${names} /> <${State} mood=${mood}>${replica.part === "needed" ? `needed, ${ordinal(order.indexOf(replica) + 1)}` : word}<//></span>
      <${Picture} replica=${replica} end=${end} decided=${decided} /><span class="took">${replica.ms === null ? "–" : millis(replica.ms)}</span><${Words} replica=${replica} highest=${highest} /></li>`;
  })}</ul></div>
    <p class="small">${decided === null ? html`<${State} mood="bad">Fewer than ${ack} answers that count.<//>` : html`Decided after <b>${millis(decided)}</b>, by the ${ordinal(ack)} answer: the upright line.`}</p>`;
}
