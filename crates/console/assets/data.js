// Data: one key at a time, with the receipt of each request; and keys by their prefix.

import { html, useState } from "./preact.js";
import { bytes, duration, fromBase64, moment, visible } from "./format.js";
import { entity } from "./entity.js";
import { store } from "./store.js";
import { Choice, NodeSelect, NotAllowed, Panel, State, Trouble, namesOf } from "./parts.js";
import { Receipt } from "./receipt.js";
import { Value } from "./value.js";
import { Keys } from "./keys.js";

/** As the console has it, in proxy.rs. */
const VALUE_BYTES_MAX = 16 << 20;

/** @typedef {{key: string, binary: boolean, node: number, ack: string, from: string, ttl: string, value: string, form: string, type: string, file: File | null}} Form */

/** @param {string} text @param {boolean} binary @returns {Uint8Array} */
export function keyBytes(text, binary) {
  if (!binary) return new TextEncoder().encode(text);
  try {
    return fromBase64(text);
  } catch {
    throw new Error("The key is no base64.");
  }
}

/** @param {string} text @returns {Uint8Array} */
export function fromHex(text) {
  const digits = text.replace(/\s/g, "");
  if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error("The value is no hexadecimal: write two digits for each byte.");
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** The value and its type, as the form says. @param {Form} form @returns {Promise<{value: Uint8Array, type: string}>} */
async function valueOf(form) {
  if (form.file) {
    // Before it is read: a page has no room for a film.
    if (form.file.size > VALUE_BYTES_MAX) throw new Error(`The file has ${bytes(form.file.size)}; the console takes values of up to ${bytes(VALUE_BYTES_MAX)}.`);
    return { value: new Uint8Array(await form.file.arrayBuffer()), type: form.type || form.file.type };
  }
  if (form.form === "hex") return { value: fromHex(form.value), type: form.type };
  if (form.form === "json") {
    try {
      JSON.parse(form.value);
    } catch (error) {
      throw new Error(`The value is no JSON: ${/** @type {Error} */ (error).message}`);
    }
    return { value: new TextEncoder().encode(form.value), type: form.type || "application/json" };
  }
  return { value: new TextEncoder().encode(form.value), type: form.type || "text/plain; charset=utf-8" };
}

/** @param {string} text */
const numberOrNull = (text) => (text.trim() === "" ? null : Number(text));

/** @param {Form} form */
const question = (form) => ({ key: keyBytes(form.key, form.binary), node: form.node, ack: numberOrNull(form.ack), from: numberOrNull(form.from) });

/** @param {{result: import("./entity.js").Entity, names: Map<string, string>, scale?: number}} props */
export function Result({ result, names, scale }) {
  const mood = result.status >= 500 || result.status === 0 ? "bad" : result.status >= 400 && result.status !== 404 ? "warning" : "good";
  const head = [["status", html`<${State} mood=${mood}>${result.status}<//>`], ["asked", `${result.operation} ${result.ack}/${result.from}`], ["took", `${duration(result.ms / 1000)} in the browser`],
    ["ETag", result.etag && html`<code class="version">${result.etag}</code>`], ["type", result.problem ? null : result.type && visible(result.type)], ["size", result.value && bytes(result.size)],
    ["expires", result.expires && `${moment(Number(result.expires))} UTC`], ["written", result.modified]].filter(([, text]) => text);
  return html`<dl class="facts">${head.map(([name, text]) => html`<div key=${name}><dt>${name}</dt><dd>${text}</dd></div>`)}</dl>
    ${result.problem && html`<${Trouble} problem=${visible(result.problem.message)} />`}
    <${Receipt} title=${`Receipt of ${result.operation} ${result.ack}/${result.from}`} lines=${result.lines} ack=${result.ack} names=${names} scale=${scale} />
    ${result.raw.length > 0 && html`<details><summary>As headers, which the command line prints with <code>--trace</code></summary><pre class="query raw-receipt">${result.raw.join("\n")}</pre></details>`}
    ${result.value && html`<${Value} value=${result.value} type=${result.type ?? ""} />`}`;
}

/** @param {{form: Form, set: (change: Partial<Form>) => void}} props */
function Address({ form, set }) {
  const from = store.placement?.from ?? 3;
  const field = (/** @type {"ack" | "from" | "ttl"} */ name, /** @type {string} */ title, /** @type {string} */ hint) => html`<label for=${`data-${name}`}>${title} <input id=${`data-${name}`} class="short" type="number" min="1" placeholder=${hint} value=${form[name]} onInput=${(/** @type {any} */ event) => set({ [name]: event.target.value })} /></label>`;
  return html`<div class="row"><label for="data-key" class="grow">Key <input id="data-key" autocomplete="off" spellcheck=${false} value=${form.key} onInput=${(/** @type {any} */ event) => set({ key: event.target.value })} /></label>
    <label for="data-binary" class="check"><input id="data-binary" type="checkbox" checked=${form.binary} onChange=${(/** @type {any} */ event) => set({ binary: event.target.checked })} /> is base64</label></div>
    <div class="row"><${NodeSelect} id="data-node" label="Through node" value=${form.node} onChange=${(/** @type {number} */ node) => set({ node })} />
      ${field("ack", "ack", String(Math.floor(from / 2) + 1))}${field("from", "from", String(from))}</div>`;
}

/** @param {{form: Form, set: (change: Partial<Form>) => void}} props */
function NewValue({ form, set }) {
  const input = (/** @type {keyof Form} */ name) => (/** @type {any} */ event) => set({ [name]: event.target.value });
  return html`<details><summary>A value to put</summary><${Choice} title="Form of the value" value=${form.form} onChange=${(/** @type {string} */ value) => set({ form: value })} choices=${[{ value: "text", title: "text" }, { value: "json", title: "JSON" }, { value: "hex", title: "hex" }]} />
    <label for="data-value">Value <textarea id="data-value" rows="4" spellcheck=${false} value=${form.value} onInput=${input("value")}></textarea></label>
    <div class="row"><label for="data-type">Type <input id="data-type" placeholder="by its form" value=${form.type} onInput=${input("type")} /></label>
      <label for="data-ttl">Lives for, seconds <input id="data-ttl" class="short" type="number" min="1" placeholder="no end" value=${form.ttl} onInput=${input("ttl")} /></label>
      <label for="data-file">Or a file <input id="data-file" type="file" onChange=${(/** @type {any} */ event) => set({ file: event.target.files[0] ?? null })} /></label></div></details>`;
}

/** @param {{form: Form, set: (change: Partial<Form>) => void, names: Map<string, string>}} props */
function One({ form, set, names }) {
  const [results, setResults] = useState(/** @type {import("./entity.js").Entity[]} */ ([]));
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const [busy, setBusy] = useState(false);
  const from = store.placement?.from ?? Math.min(3, store.session?.nodes.length ?? 1);
  const run = async (/** @type {() => Promise<import("./entity.js").Entity[]>} */ ask) => {
    setBusy(true);
    setProblem(null);
    try {
      setResults(await ask());
    } catch (error) {
      setResults([]);
      setProblem(/** @type {Error} */ (error));
    }
    setBusy(false);
  };
  const one = (/** @type {string} */ operation) => run(async () => [await entity(operation, { ...question(form), ttl: operation === "PUT" ? numberOrNull(form.ttl) : null }, operation === "PUT" ? await valueOf(form) : null, from)]);
  const compare = () => run(async () => {
    const all = [];
    for (let ack = 1; ack <= from; ack += 1) all.push(await entity("GET", { ...question(form), ack, from }, null, from));
    return all;
  });
  const writes = store.may("write");
  const scale = Math.max(0, ...results.flatMap((result) => result.lines.map((line) => line.ms ?? 0)));
  const side = Array.from({ length: from }, (_, index) => `${index + 1}/${from}`).join(", ");
  return html`<form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); void one("GET"); }}><${Address} form=${form} set=${set} /><${NewValue} form=${form} set=${set} />
      <div class="row buttons"><button class="main" disabled=${busy}>Get</button><button type="button" disabled=${busy || !writes} onClick=${() => one("PUT")}>Put</button><button type="button" class="danger" disabled=${busy || !writes} onClick=${() => one("DELETE")}>Delete</button>
        <button type="button" disabled=${busy} onClick=${compare}>Read at ${side} side by side</button></div>${!writes && html`<${NotAllowed} level="write" />`}</form>
    <${Trouble} problem=${problem} /><div class=${results.length > 1 ? "side-by-side" : ""} role="region" aria-live="polite" aria-label="Answer">${results.map((result) => html`<div key=${`${result.ack}/${result.from}`} class="result">${results.length > 1 && html`<h3>Read at ${result.ack}/${result.from}</h3>`}<${Result} result=${result} names=${names} scale=${scale} /></div>`)}</div>`;
}

/** @param {{frame: Frame}} props */
export function Data({ frame }) {
  const names = namesOf(frame);
  const [form, setForm] = useState(/** @type {Form} */ ({ key: "", binary: false, node: 0, ack: "", from: "", ttl: "", value: "", form: "text", type: "", file: null }));
  const set = (/** @type {Partial<Form>} */ change) => setForm((/** @type {Form} */ known) => ({ ...known, ...change }));
  return html`<div class="grid"><${Panel} title="One key" wide><${One} form=${form} set=${set} names=${names} /><//>
    <${Panel} title="Keys by prefix" wide><${Keys} node=${form.node} onChoose=${(/** @type {string} */ key, /** @type {boolean} */ binary) => { set({ key, binary }); document.getElementById("data-key")?.focus(); }} /><//></div>`;
}
