// Asks a page of each node again and again while somebody looks; for what the stream does not carry.

import { useEffect, useReducer, useRef } from "./preact.js";
import { json } from "./api.js";
import { store } from "./store.js";

/** @typedef {{url: string, value: any, problem: string}} Polled */

/** A node that is known to be silent is not asked. @param {string} url @param {number} index @param {string} path @param {AbortSignal} signal @returns {Promise<Polled>} */
async function askOne(url, index, path, signal) {
  const node = store.frame?.nodes.find((candidate) => candidate.url === url);
  if (node?.state === "silent" || node?.state === "not-kvorum") return { url, value: null, problem: node.state };
  try {
    return { url, value: await json(`/api/nodes/${index}/${path}`, { signal }), problem: "" };
  } catch (error) {
    return { url, value: null, problem: /** @type {Error} */ (error).message };
  }
}

/** The newest answer of each node to this path, in the order of the session.
 * @param {string} path Below `/api/nodes/N/`. @param {number} everyMs @param {(answers: Polled[]) => void} [onAnswers] @returns {Polled[]} */
export function usePolled(path, everyMs, onAnswers) {
  const [, again] = useReducer((/** @type {number} */ n) => n + 1, 0);
  const held = useRef(/** @type {Polled[]} */ ([]));
  const nodes = store.session?.nodes ?? [];
  useEffect(() => {
    let ended = false;
    let timer = 0;
    const abort = new AbortController();
    const ask = async () => {
      if (!document.hidden) {
        held.current = await Promise.all(nodes.map((url, index) => askOne(url, index, path, abort.signal)));
        if (ended) return;
        onAnswers?.(held.current);
        again(0);
      }
      timer = setTimeout(ask, everyMs);
    };
    void ask();
    return () => {
      ended = true;
      clearTimeout(timer);
      abort.abort();
    };
  }, [path, nodes.join()]);
  return held.current;
}
