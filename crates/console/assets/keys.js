// Keys by their prefix, through a scan of the cluster.

import { html, useState } from "./preact.js";
import { lines, problemOf, request } from "./api.js";
import { bytes, moment, visible } from "./format.js";
import { Key, State, Table, Trouble } from "./parts.js";

const LIMIT = 50;
const PREVIEW_CHARACTERS = 60;

/** @typedef {{rows: ScanRecord[], after: string | null, broken: boolean}} ScanPage */

/** Bytes that base64 text stands for. @param {string} text */
const sizeOfBase64 = (text) => Math.floor((text.replace(/=+$/, "").length * 3) / 4);

/** @param {number} node @param {string} prefix @param {string | null} after @returns {Promise<ScanPage>} */
async function scan(node, prefix, after) {
  const parameters = new URLSearchParams({ prefix, limit: String(LIMIT) });
  if (after) parameters.set("after", after);
  const response = await request(`/api/nodes/${node}/scan?${parameters}`);
  if (!response.ok) throw await problemOf(response);
  /** @type {ScanPage} */
  const page = { rows: [], after: null, broken: true };
  for await (const line of lines(response)) {
    if (line.trim() === "") continue;
    const one = JSON.parse(line);
    if ("complete" in one) {
      page.after = one.after;
      page.broken = false;
    } else if ("key" in one || "key_base64" in one) page.rows.push(preview(one));
  }
  return page;
}

/** What of a record is kept: values may be of 8 MiB. @param {any} one @returns {ScanRecord} */
export function preview(one) {
  const size = one.value !== undefined ? new TextEncoder().encode(one.value).length : sizeOfBase64(one.value_base64 ?? "");
  const value = one.value !== undefined ? one.value.slice(0, PREVIEW_CHARACTERS) : null;
  return { key: one.key ?? one.key_base64, binary: one.key === undefined, etag: one.etag ?? "", type: one.content_type ?? "", expires: one.expires_ms ?? null, size, value };
}

/** @param {{node: number, onChoose: (key: string, binary: boolean) => void}} props */
export function Keys({ node, onChoose }) {
  const [prefix, setPrefix] = useState("");
  const [page, setPage] = useState(/** @type {ScanPage | null} */ (null));
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const ask = async (/** @type {string | null} */ after) => {
    setProblem(null);
    try {
      setPage(await scan(node, prefix, after));
    } catch (error) {
      setPage(null);
      setProblem(/** @type {Error} */ (error));
    }
  };
  const rows = (page?.rows ?? []).map((one) => ({ key: `${one.binary} ${one.key}`, cells: [
    html`<button type="button" class="link" onClick=${() => onChoose(one.key, one.binary)}>${one.binary && html`<span class="dim">base64 </span>`}<${Key} text=${one.key} /></button>`,
    one.value === null ? html`<span class="dim">no text</span>` : html`<bdi class="key-text">${visible(one.value)}</bdi>`, bytes(one.size), visible(one.type), one.expires ? moment(one.expires) : "–",
  ] }));
  return html`<form class="row" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); void ask(null); }}><label for="keys-prefix" class="grow">Keys that begin with <input id="keys-prefix" autocomplete="off" placeholder="nothing: all" value=${prefix} onInput=${(/** @type {any} */ event) => setPrefix(event.target.value)} /></label>
      <button>List</button>${page?.after && html`<button type="button" onClick=${() => ask(page.after)}>Next ${LIMIT}</button>`}</form><${Trouble} problem=${problem} />
    ${page && html`<${Table} title="Keys" head=${["key", "value", "size", "type", "expires, UTC"]} rows=${rows} empty="No key begins with this." />`}
    ${page?.broken && html`<p><${State} mood="warning">The list ended early: a node stopped answering. List again.<//></p>`}`;
}
