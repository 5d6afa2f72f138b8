// A request's receipt: from the headers of an answer to who answered what, when, and who was needed. Pure.

/** @typedef {"needed" | "extra" | "failed" | "absent"} Part
 * needed: among the first `ack` answers; extra: an answer beyond them; failed: an answer that does not count; absent: none. */
/** @typedef {{node: string, outcome: string, version: string | null, ms: number | null, part: Part}} Replica */

const COUNTS = new Set(["accepted", "record", "version", "absent"]);

/** @param {string | null} replicas The header Kvorum-Replicas. @param {string | null} timing The header Server-Timing.
 * @returns {ReceiptLine[]} */
export function parse(replicas, timing) {
  /** @type {Map<string, number>} */
  const times = new Map();
  for (const item of (timing ?? "").split(", ")) {
    const [, node, ms] = /desc="([^"]*)"(?:;dur=([\d.]+))?/.exec(item) ?? [];
    if (node && ms !== undefined) times.set(node, Number(ms));
  }
  return (replicas ?? "").split(", ").filter(Boolean).map((item) => {
    const [, node = item, outcome = "", version = null] = /^(.*)=([^=@]*)(?:@(.*))?$/.exec(item) ?? [];
    return { node, outcome, version: version ?? null, ms: times.get(node) ?? null };
  });
}

/** Who was needed: the first `ack` answers that count, in the order of their times.
 * @param {ReceiptLine[]} lines @param {number} ack @returns {{replicas: Replica[], decided: number | null}} */
export function judged(lines, ack) {
  const counts = (/** @type {ReceiptLine} */ line) => COUNTS.has(line.outcome) && line.ms !== null;
  const order = lines.filter(counts).sort((a, b) => /** @type {number} */ (a.ms) - /** @type {number} */ (b.ms));
  const needed = new Set(order.slice(0, ack));
  const decided = order.length >= ack ? order[ack - 1]?.ms ?? null : null;
  /** @returns {Part} */
  const part = (/** @type {ReceiptLine} */ line) => {
    if (needed.has(line)) return "needed";
    if (counts(line)) return "extra";
    return line.outcome === "no-answer" || line.outcome === "" ? "absent" : "failed";
  };
  return { replicas: lines.map((line) => ({ ...line, part: part(line) })), decided };
}

/** The highest version among the answers, which is what a read gives. Versions order like their text.
 * @param {ReceiptLine[]} lines @returns {string | null} */
export const newest = (lines) => lines.reduce((/** @type {string | null} */ best, line) => (line.version && line.outcome !== "absent" && (!best || line.version > best) ? line.version : best), null);

/** How many answers a request needs, by default a majority. @param {number | null} ack @param {number} from @returns {number} */
export const required = (ack, from) => ack ?? Math.floor(from / 2) + 1;

/** What an outcome means. @param {string} outcome @returns {string} */
export function meaning(outcome) {
  /** @type {Record<string, string>} */
  const words = {
    accepted: "stored it durably",
    record: "gave the record",
    version: "gave its version",
    absent: "has nothing under this key",
    stale: "holds something newer",
    "no-answer": "had not answered by then, or was not asked",
    unreachable: "could not be reached",
    timeout: "did not answer in time",
    overloaded: "had too much to do",
    "disk-full": "has a full disk",
    "disk-failed": "has a disk that failed",
    corrupt: "found its record damaged",
    rebuilding: "is rebuilding and has no vote",
    "clock-skew": "has a clock too far from the others'",
    "not-serving": "does not serve yet",
  };
  return words[outcome] ?? "";
}
