// A value, shown as text, JSON or bytes. Only ever as text of the page; long ones in part.

import { html, useState } from "./preact.js";
import { bytes, hexDump, visibleLines } from "./format.js";
import { Choice } from "./parts.js";

const SHOWN_BYTES_MAX = 65536;
const HEX_BYTES_MAX = 8192;

/** The text, where all of the bytes are; null where they are not. @param {Uint8Array} value @returns {string | null} */
export function asText(value) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(value);
  } catch {
    return null;
  }
}

/** How a value is shown unless somebody chooses. @param {string | null} text @param {string} type @returns {string} */
export function formOf(text, type) {
  if (text === null || text.includes("\0")) return "hex";
  return /\bjson\b/.test(type) ? "json" : "text";
}

/** @param {string | null} text @returns {string} */
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text ?? ""), null, 2);
  } catch {
    return "(not JSON)";
  }
}

/** @param {Uint8Array} value */
function download(value) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([/** @type {BlobPart} */ (value)], { type: "application/octet-stream" }));
  link.download = "value";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @param {{value: Uint8Array, type: string}} props */
export function Value({ value, type }) {
  const [chosen, setChosen] = useState("");
  // The end of what is shown may cut a character in two, so whether it is text is asked of all of it.
  const whole = asText(value);
  const form = chosen || formOf(whole, type);
  const most = form === "hex" ? HEX_BYTES_MAX : SHOWN_BYTES_MAX;
  const text = form === "hex" ? hexDump(value.subarray(0, most)) : visibleLines((form === "json" ? indented(whole) : whole ?? new TextDecoder().decode(value.subarray(0, most))).slice(0, most));
  return html`<div class="row"><${Choice} title="Show the value as" value=${form} onChange=${setChosen} choices=${[{ value: "text", title: "text" }, { value: "json", title: "JSON" }, { value: "hex", title: "hex" }]} />
      <button type="button" onClick=${() => download(value)}>Save ${bytes(value.length)}</button></div>
    ${value.length === 0 ? html`<p class="dim">The value is empty.</p>` : html`<pre class="value" tabindex="0" aria-label="Value">${text}</pre>`}
    ${value.length > most && html`<p class="dim small">The first ${bytes(most)} of ${bytes(value.length)}. Save it to see all.</p>`}
    ${form === "text" && whole === null && html`<p class="dim small">These bytes are no UTF-8: what cannot be read is shown as �.</p>`}`;
}
