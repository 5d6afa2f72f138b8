// Hot keys and partitions of several nodes, put together, and over time. Pure.

import { fromBase64 } from "./format.js";

const WINDOWS_MAX = 30;
const KEPT_PARTITIONS = 64;

/** @typedef {{at: number, total: number, counts: Map<number, number>}} HotWindow */

/** Keys of all nodes, the counts of one key added, the largest first. @param {HotAnswer[]} answers @returns {HotKey[]} */
export function mergedKeys(answers) {
  /** @type {Map<string, HotKey>} */
  const all = new Map();
  for (const key of answers.flatMap((answer) => answer.keys)) {
    const id = key.key ?? key.key_base64 ?? key.hash;
    const known = all.get(id);
    all.set(id, known ? { ...known, count: known.count + key.count, error: known.error + key.error } : key);
  }
  return Array.from(all.values()).sort((a, b) => b.count - a.count);
}

/** Counts of partitions of all nodes. @param {HotAnswer[]} answers @returns {Map<number, number>} */
export function partitionCounts(answers) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const { partitions } of answers) {
    const data = fromBase64(partitions);
    const view = new DataView(data.buffer);
    for (let index = 0; index * 4 + 4 <= data.length; index += 1) {
      const value = view.getUint32(index * 4, true);
      if (value > 0) counts.set(index, (counts.get(index) ?? 0) + value);
    }
  }
  return counts;
}

/** The partitions with the highest counts. @param {Map<number, number>} counts @param {number} most @returns {number[]} */
export const heaviest = (counts, most) => Array.from(counts).sort(([a, x], [b, y]) => y - x || a - b).slice(0, most).map(([partition]) => partition);

/** Adds a window, unless it is the one that was added last. Keeps thirty, and of each its hottest partitions.
 * @param {HotWindow[]} known @param {HotAnswer[]} answers @returns {HotWindow[]} */
export function withWindow(known, answers) {
  const at = Math.max(0, ...answers.map((answer) => answer.at_ms));
  if (answers.length === 0 || at === known[known.length - 1]?.at) return known;
  const all = partitionCounts(answers);
  const total = Array.from(all.values()).reduce((sum, value) => sum + value, 0);
  const counts = new Map(heaviest(all, KEPT_PARTITIONS).map((partition) => [partition, all.get(partition) ?? 0]));
  return [...known, { at, total, counts }].slice(-WINDOWS_MAX);
}
