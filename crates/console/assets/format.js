// How values become words and figures. Pure.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** What stands where a value is not known. */
export const UNKNOWN = "–";

/** @param {number | null | undefined} value */
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** A count, in full. @param {number | null | undefined} value @returns {string} */
export const count = (value) => (known(value) ? whole.format(/** @type {number} */ (value)) : UNKNOWN);

/** Three digits that count; all digits of what is larger. @param {number | null | undefined} value @returns {string} */
export function figure(value) {
  if (!known(value)) return UNKNOWN;
  const number = /** @type {number} */ (value);
  return Math.abs(number) >= 1000 ? whole.format(number) : precise.format(number);
}

/** @param {number | null | undefined} value @returns {string} */
export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  let number = /** @type {number} */ (value);
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(number) >= 1024 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? whole.format(number) : precise.format(number)} ${units[unit]}`;
}

/** A time in the unit that suits it, from microseconds to days. @param {number | null | undefined} seconds @returns {string} */
export function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const value = /** @type {number} */ (seconds);
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${precise.format(value * 1e6)} µs`;
  if (size < 1) return `${precise.format(value * 1e3)} ms`;
  if (size < 120) return `${precise.format(value)} s`;
  if (size < 7200) return `${whole.format(value / 60)} min`;
  if (size < 172800) return `${precise.format(value / 3600)} h`;
  return `${precise.format(value / 86400)} d`;
}

/** @param {number | null | undefined} share Of 1. @returns {string} */
export function percent(share) {
  if (!known(share)) return UNKNOWN;
  const value = 100 * /** @type {number} */ (share);
  if (value > 0 && value < 0.01) return "< 0.01 %";
  return `${value > 99 && value < 100 ? Math.floor(value * 1000) / 1000 : precise.format(value)} %`;
}

/** Writes a value of a series in its unit: `s`, `B`, `B/s`, `1/s`, `share`, or a number. @param {number | null | undefined} value @param {string} unit @returns {string} */
export function inUnit(value, unit) {
  if (!known(value)) return UNKNOWN;
  if (unit === "s") return duration(value);
  if (unit === "B") return bytes(value);
  if (unit === "B/s") return `${bytes(value)}/s`;
  if (unit === "1/s") return `${figure(value)}/s`;
  if (unit === "share") return percent(value);
  return figure(value);
}

/** The time of day, in UTC. @param {number} ms Since 1970. @returns {string} */
export const clock = (ms) => new Date(ms).toISOString().slice(11, 19);

/** Day and time, in UTC. @param {number} ms Since 1970. @returns {string} */
export const moment = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");

// Control, format (so all that turn the direction of text), unassigned and private characters, lone surrogates, and
// spaces that are not the space.
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const NAMES = new Map([["\n", "\\n"], ["\r", "\\r"], ["\t", "\\t"], ["\0", "\\0"]]);

/** @param {string} character */
const named = (character) => NAMES.get(character) ?? `\\u{${/** @type {number} */ (character.codePointAt(0)).toString(16)}}`;

/** Text of which every character is seen: those that hide, or turn others around, by name. A backslash is doubled.
 * @param {string} text @returns {string} */
export const visible = (text) => text.replaceAll("\\", "\\\\").replace(HIDDEN, named);

/** The same for a value of several lines, which stay lines. @param {string} text @returns {string} */
export const visibleLines = (text) => text.replace(HIDDEN, (character) => (character === "\n" || character === "\t" ? character : named(character)));

/** A name for each node that is short: a letter, or a number where there are many.
 * @param {number} index @param {number} [nodes] @returns {string} */
export const letter = (index, nodes = 0) => (nodes <= 26 && index < 26 ? String.fromCharCode(97 + index) : String(index + 1));

/** Host and port of a node's URL. @param {string} url @returns {string} */
export const host = (url) => url.replace(/^https?:\/\//, "").replace(/\/$/, "");

/** "a", "a and b", "a, b and c". @param {string[]} words @returns {string} */
export function list(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}

/** @param {string} text Base64. @returns {Uint8Array} */
export function fromBase64(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

/** Bytes as hexadecimal, sixteen a line, with their place and what of them is ASCII.
 * @param {Uint8Array} data @returns {string} */
export function hexDump(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = Array.from(data.subarray(at, at + 16));
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const ascii = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${ascii}`);
  }
  return lines.join("\n");
}
