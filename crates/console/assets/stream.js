// The stream of frames: read for as long as the page is open, and opened anew when it ends or falls silent.

import { Problem, lines, problemOf, request } from "./api.js";

const SILENCE_MS_MAX = 5000;
const DELAY_MS_MIN = 250;
const DELAY_MS_MAX = 8000;

/** @typedef {{state: "connecting" | "live" | "lost" | "refused", why: string, retryMs: number}} Link */

/** How long to wait before the next attempt. @param {number} failures @returns {number} */
export const delay = (failures) => Math.min(DELAY_MS_MAX, DELAY_MS_MIN * 2 ** Math.min(failures, 10));

/** One connection, until it ends. @param {(frame: Frame) => void} onFrame @param {() => void} onLive */
async function once(onFrame, onLive) {
  const abort = new AbortController();
  let watchdog = setTimeout(() => abort.abort(), SILENCE_MS_MAX);
  try {
    const response = await request("/api/stream", { signal: abort.signal });
    if (!response.ok) throw await problemOf(response);
    onLive();
    for await (const line of lines(response)) {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => abort.abort(), SILENCE_MS_MAX);
      if (line.startsWith("data:")) onFrame(JSON.parse(line.slice(5)));
    }
  } finally {
    clearTimeout(watchdog);
    abort.abort();
  }
}

/** Never ends, but where the token is refused. @param {(frame: Frame) => void} onFrame @param {(link: Link) => void} onLink */
export async function follow(onFrame, onLink) {
  for (let failures = 0; ; failures += 1) {
    let why = "the console ended the stream";
    try {
      await once(onFrame, () => {
        failures = 0;
        onLink({ state: "live", why: "", retryMs: 0 });
      });
    } catch (error) {
      if (error instanceof Problem && (error.status === 401 || error.status === 403)) {
        onLink({ state: "refused", why: error.message, retryMs: 0 });
        return;
      }
      why = error instanceof Problem ? error.message : "the console fell silent";
    }
    const retryMs = delay(failures);
    onLink({ state: "lost", why, retryMs });
    await new Promise((resolve) => setTimeout(resolve, retryMs));
  }
}
