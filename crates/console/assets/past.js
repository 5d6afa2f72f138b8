// Values of series over time: asked for once, then continued by the stream. Bounded by the window.

import { json } from "./api.js";
import { store } from "./store.js";
import { useEffect, useReducer, useRef } from "./preact.js";

/** @typedef {{xs: number[], nodes: Map<string, Map<string, (number | null)[]>>, problem: string}} PastValues xs in seconds since 1970. */

/** Windows that can be chosen. Over an hour there is a point a minute, which the stream does not give. */
export const WINDOWS = [{ seconds: 300, title: "5 min" }, { seconds: 3600, title: "1 h" }, { seconds: 86400, title: "24 h" }];

const LIVE_SECONDS_MAX = 3600;
const AGAIN_MS = 60000;

export class Past {
  /** @param {string[]} ids @param {number} seconds */
  constructor(ids, seconds) {
    this.ids = ids;
    this.seconds = seconds;
    /** @type {PastValues} */
    this.values = { xs: [], nodes: new Map(), problem: "" };
    this.loaded = false;
  }

  /** @param {HistoryAnswer} answer */
  load(answer) {
    const points = Math.max(0, ...answer.nodes.flatMap((node) => Object.values(node.series).map((values) => values.length)));
    const xs = Array.from({ length: points }, (_, index) => (answer.end_ms - (points - 1 - index) * answer.step_ms) / 1000);
    const later = this.values.xs.filter((x) => x * 1000 > answer.end_ms + answer.step_ms / 2);
    const skipped = this.values.xs.length - later.length;
    const nodes = new Map(answer.nodes.map((node) => [node.url, new Map(Object.entries(node.series))]));
    for (const [url, series] of this.values.nodes) {
      for (const [id, values] of series) {
        const target = nodes.get(url)?.get(id);
        if (target) target.push(...values.slice(skipped));
      }
    }
    this.values = { xs: [...xs, ...later], nodes, problem: "" };
    this.even();
    this.loaded = true;
  }

  /** Each series as long as the axis. */
  even() {
    const { xs, nodes } = this.values;
    for (const series of nodes.values()) {
      for (const id of this.ids) {
        const values = series.get(id) ?? [];
        while (values.length < xs.length) values.push(null);
        series.set(id, values);
      }
    }
  }

  /** @param {Frame} frame */
  add(frame) {
    const { xs, nodes } = this.values;
    const at = frame.at_ms / 1000;
    if (this.seconds > LIVE_SECONDS_MAX || at <= (xs[xs.length - 1] ?? 0)) return;
    xs.push(at);
    for (const node of frame.nodes) {
      const series = nodes.get(node.url) ?? new Map();
      nodes.set(node.url, series);
      for (const id of this.ids) {
        const values = series.get(id) ?? new Array(xs.length - 1).fill(null);
        series.set(id, values);
        values.push(node.series[id] ?? null);
      }
    }
    this.even();
    this.trim(at);
  }

  /** @param {number} at */
  trim(at) {
    const { xs, nodes } = this.values;
    const old = xs.findIndex((x) => x > at - this.seconds);
    if (old <= 0) return;
    xs.splice(0, old);
    for (const series of nodes.values()) for (const values of series.values()) values.splice(0, old);
  }
}

/** The values of these series in the last seconds. @param {string[]} ids @param {number} seconds @returns {PastValues} */
export function usePast(ids, seconds) {
  const [, again] = useReducer((/** @type {number} */ n) => n + 1, 0);
  const key = `${ids.join(",")} ${seconds}`;
  const held = useRef(/** @type {{key: string, past: Past} | null} */ (null));
  if (held.current?.key !== key) held.current = { key, past: new Past(ids, seconds) };
  const { past } = held.current;
  useEffect(() => {
    const ask = () => json(`/api/history?series=${ids.map(encodeURIComponent).join(",")}&seconds=${seconds}`).then(
      (answer) => { past.load(answer); again(0); },
      (error) => { past.values = { ...past.values, problem: error.message }; again(0); },
    );
    void ask();
    const timer = seconds > LIVE_SECONDS_MAX ? setInterval(ask, AGAIN_MS) : undefined;
    return () => clearInterval(timer);
  }, [key]);
  const frame = store.frame;
  if (frame) past.add(frame);
  return past.values;
}
