// What several pages are built of.

import { html, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { host, letter, visible } from "./format.js";
import { store } from "./store.js";
import { urls } from "./verdict.js";
import { WINDOWS } from "./past.js";

/** @typedef {"good" | "warning" | "bad" | "off" | "busy"} Mood */

const SHAPES = { good: "●", warning: "▲", bad: "■", off: "○", busy: "◐" };

/** A state: colour, shape and word. @param {{mood: Mood, children?: any, title?: string}} props */
export const State = ({ mood, children, title }) =>
  html`<span class=${`state ${mood}`} title=${title}><span aria-hidden="true">${SHAPES[mood]}</span> ${children}</span>`;

/** The state of a node as the console sees it. @param {FrameNode} node @returns {{mood: Mood, word: string, why: string}} */
export function stateOf(node) {
  if (node.state === "up" && node.stats && !node.stats.ready) return { mood: "warning", word: "not ready", why: node.stats.reason ?? "" };
  if (node.state === "up") return { mood: "good", word: "up", why: "" };
  if (node.state === "silent") return { mood: "bad", word: "silent", why: node.why ?? "" };
  return { mood: "warning", word: node.state, why: node.why ?? "" };
}

/** A section with its heading. @param {{title: string, children?: any, wide?: boolean, aside?: any}} props */
export function Panel({ title, children, wide, aside }) {
  const id = `h-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  return html`<section class=${wide ? "panel wide" : "panel"} aria-labelledby=${id}><div class="head"><h2 id=${id}>${title}</h2>${aside}</div>${children}</section>`;
}

const FIGURE = /^([\d–−<+-]|never)/;

/** Whether a column holds figures, which stand at the right. @param {any[]} cells */
const isFigures = (cells) => cells.some((cell) => typeof cell === "string") && cells.every((cell) => typeof cell !== "string" || FIGURE.test(cell));

/** A table that scrolls by itself where the page is narrow. Cells of the first column are headings of their rows.
 * @param {{title: string, head: any[], rows: {key: string | number, cells: any[], class?: string}[], empty?: string}} props */
export function Table({ title, head, rows, empty = "Nothing." }) {
  if (rows.length === 0) return html`<p class="dim">${empty}</p>`;
  const sides = head.map((_, index) => (index > 0 && isFigures(rows.flatMap((row) => row.cells.slice(index, index + 1))) ? "n" : undefined));
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`${title}, table`}><table>
    <thead><tr>${head.map((cell, index) => html`<th scope="col" class=${sides[index]}>${cell}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.key} class=${row.class}>${row.cells.map((cell, index) => (index === 0 ? html`<th scope="row">${cell}</th>` : html`<td class=${sides[index]}>${cell}</td>`))}</tr>`)}</tbody>
  </table></div>`;
}

/** Names of all nodes: a letter, and where they are. @param {Frame | null} frame @returns {Map<string, string>} */
export function namesOf(frame) {
  const all = frame ? Array.from(new Set([...urls(frame), ...frame.nodes.map((node) => node.url)])) : [];
  return new Map(all.map((url, index) => [url, `${letter(index, all.length)} ${host(url)}`]));
}

/** A node by letter and address. @param {{url: string, names: Map<string, string>}} props */
export function NodeName({ url, names }) {
  const [short, ...rest] = (names.get(url) ?? host(url)).split(" ");
  return html`<span class="node"><b>${short}</b>${rest.length > 0 && html` <span class="dim">${rest.join(" ")}</span>`}</span>`;
}

/** Any text of others, each of whose characters is seen. @param {{text: string}} props */
export const Key = ({ text }) => html`<bdi class="key-text">${visible(text)}</bdi>`;

/** What went wrong, where the person looks. @param {{problem: Error | string | null | undefined}} props */
export const Trouble = ({ problem }) => (problem ? html`<p class="trouble" role="alert">${typeof problem === "string" ? problem : problem.message}</p>` : null);

/** A bar by its share of the whole. @param {{share: number, mood?: string, label?: string}} props */
export function Bar({ share, mood = "", label = "" }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    if (place.current) place.current.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  }, [share]);
  return html`<span class=${`bar ${mood}`} role="img" aria-label=${label} aria-hidden=${label ? undefined : "true"}><span ref=${place}></span></span>`;
}

/** Each group of radio buttons needs a name of its own. */
let choicesMade = 0;

/** Chooses one of a few. @param {{title: string, value: any, choices: {value: any, title: string}[], onChange: (value: any) => void}} props */
export function Choice({ title, value, choices, onChange }) {
  const name = useMemo(() => `choice-${(choicesMade += 1)}`, []);
  return html`<fieldset class="choice"><legend class="sr">${title}</legend>${choices.map((choice) => html`<label key=${choice.value}>
    <input type="radio" name=${name} checked=${choice.value === value} onChange=${() => onChange(choice.value)} /><span>${choice.title}</span></label>`)}</fieldset>`;
}

/** The window of the graphs. @param {{value: number, onChange: (seconds: number) => void}} props */
export const Window = ({ value, onChange }) =>
  html`<${Choice} title="Window of the graphs" value=${value} onChange=${onChange} choices=${WINDOWS.map((window) => ({ value: window.seconds, title: window.title }))} />`;

/** A node to ask, by its place in the session. @param {{value: number, onChange: (index: number) => void, label?: string, id: string}} props */
export function NodeSelect({ value, onChange, label = "Node", id }) {
  const names = namesOf(store.frame);
  const all = store.session?.nodes ?? [];
  return html`<label for=${id}>${label}<select id=${id} value=${value} onChange=${(/** @type {any} */ event) => onChange(Number(event.target.value))}>
    ${all.map((url, index) => html`<option key=${url} value=${index}>${names.get(url) ?? host(url)}</option>`)}</select></label>`;
}

/** A button that does something and says what came of it. @param {{action: () => Promise<any>, children?: any, done?: string, disabled?: boolean, kind?: string}} props */
export function Action({ action, children, done = "", disabled, kind = "" }) {
  const [state, setState] = useState(/** @type {{busy: boolean, said: string, problem: Error | null}} */ ({ busy: false, said: "", problem: null }));
  const run = async () => {
    setState({ busy: true, said: "", problem: null });
    try {
      await action();
      setState({ busy: false, said: done, problem: null });
    } catch (error) {
      setState({ busy: false, said: "", problem: /** @type {Error} */ (error) });
    }
  };
  return html`<span class="action"><button type="button" class=${kind} disabled=${disabled || state.busy} onClick=${run}>${children}</button>
    ${state.said && html`<span role="status" class="dim">${state.said}</span>`}<${Trouble} problem=${state.problem} /></span>`;
}

/** Why a page or a button is not for this console. @param {{level: string}} props */
export const NotAllowed = ({ level }) =>
  html`<p class="note">This console may only ${store.session?.level ?? "read"}. Start it with <code>--level ${level}</code> for this.</p>`;
