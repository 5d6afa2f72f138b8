// The console's HTTP. The token comes from the URL's fragment, lives in this tab only, and goes with each request.

const KEPT = "kvorum-console";

/** A refusal in words. */
export class Problem extends Error {
  /** @param {number} status @param {string} title @param {string} detail @param {any} [body] */
  constructor(status, title, detail, body = null) {
    super(detail ? `${title}: ${detail}` : title);
    this.status = status;
    this.body = body;
  }
}

/** Takes the token out of the URL, so that it is neither seen nor kept in the history. @returns {boolean} Whether there was one. */
export function takeToken() {
  const fragment = location.hash.slice(1);
  if (fragment === "" || fragment.startsWith("/")) return false;
  sessionStorage.setItem(KEPT, fragment);
  history.replaceState(null, "", "#/overview");
  return true;
}

/** @returns {Record<string, string>} */
const headers = () => ({ "kvorum-console": sessionStorage.getItem(KEPT) ?? "" });

/** What an answer refuses, in words. @param {Response} response @returns {Promise<Problem>} */
export async function problemOf(response) {
  const text = await response.text().catch(() => "");
  try {
    const body = JSON.parse(text);
    return new Problem(response.status, body.title ?? String(response.status), body.detail ?? "", body);
  } catch {
    return new Problem(response.status, `${response.status} ${response.statusText}`.trim(), text.slice(0, 300));
  }
}

/** Any request. What is no answer at all is a `Problem` too.
 * @param {string} path @param {RequestInit} [init] @returns {Promise<Response>} */
export async function request(path, init = {}) {
  try {
    return await fetch(path, { ...init, headers: { ...headers(), ...init.headers }, cache: "no-store" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "The console does not answer", "is its process still running?");
  }
}

/** @param {string} path @param {RequestInit} [init] @returns {Promise<any>} */
export async function json(path, init) {
  const response = await request(path, init);
  if (!response.ok) throw await problemOf(response);
  return response.json();
}

/** @param {string} path @param {unknown} body @returns {Promise<any>} */
export const post = (path, body) =>
  json(path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });

/** @param {string} path @returns {Promise<any>} */
export const remove = (path) => json(path, { method: "DELETE" });

/** Reads lines of text from an answer's body. @param {Response} response @returns {AsyncGenerator<string, void>} */
export async function* lines(response) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = parts.pop() ?? "";
      yield* parts;
    }
    if (rest) yield rest;
  } finally {
    reader.cancel().catch(() => {});
  }
}
