// Asks for one key and takes the answer apart: status, headers, receipt, value.

import { Problem, problemOf, request } from "./api.js";
import { parse, required } from "./receipt-model.js";

/** @typedef {{operation: string, status: number, etag: string | null, type: string | null, expires: string | null, modified: string | null, size: number, value: Uint8Array | null,
 *   problem: Problem | null, lines: ReceiptLine[], raw: string[], ack: number, from: number, ms: number}} Entity */

/** @typedef {{key: Uint8Array, node: number, ack: number | null, from: number | null}} Question */

/** A key's bytes as a part of a URL. @param {Uint8Array} key @returns {string} */
export const escaped = (key) => Array.from(key, (byte) => ((byte >= 48 && byte <= 57) || (byte >= 65 && byte <= 90) || (byte >= 97 && byte <= 122) ? String.fromCharCode(byte) : `%${byte.toString(16).padStart(2, "0")}`)).join("");

/** @param {Question & {ttl?: number | null}} question @returns {string} */
export function path({ key, node, ack, from, ttl = null }) {
  const parameters = [`id=${escaped(key)}`];
  if (ack !== null) parameters.push(`ack=${ack}`);
  if (from !== null) parameters.push(`from=${from}`);
  if (ttl !== null) parameters.push(`ttl=${ttl}`);
  return `/api/nodes/${node}/entity?${parameters.join("&")}`;
}

/** @param {Response} response @returns {{lines: ReceiptLine[], raw: string[]}} */
function receiptOf(response) {
  const [timing, replicas] = [response.headers.get("server-timing"), response.headers.get("kvorum-replicas")];
  const raw = [timing && `Server-Timing: ${timing}`, replicas && `Kvorum-Replicas: ${replicas}`].filter((line) => typeof line === "string");
  return { lines: parse(replicas, timing), raw };
}

/** The receipt of a 504 is in its body. @param {Problem | null} problem @returns {ReceiptLine[]} */
const receiptOfProblem = (problem) => (Array.isArray(problem?.body?.replicas) ? problem.body.replicas.map((/** @type {any} */ one) => ({ node: one.node, outcome: one.outcome, version: one.version ?? null, ms: typeof one.micros === "number" ? one.micros / 1000 : null })) : []);

/** @param {string} operation GET, PUT or DELETE. @param {Question & {ttl?: number | null}} question
 * @param {{value: Uint8Array, type: string} | null} body @param {number} fromDefault @returns {Promise<Entity>} */
export async function entity(operation, question, body, fromDefault) {
  const began = performance.now();
  const init = { method: operation, body: body ? /** @type {BodyInit} */ (body.value) : null, headers: /** @type {Record<string, string>} */ (body?.type ? { "content-type": body.type } : {}) };
  const response = await request(path(question), init);
  const { lines, raw } = receiptOf(response);
  const ok = response.ok;
  const head = { etag: response.headers.get("etag"), type: response.headers.get("content-type"), expires: response.headers.get("kvorum-expires"), modified: response.headers.get("last-modified") };
  const problem = ok ? null : await problemOf(response);
  const value = ok && operation === "GET" ? new Uint8Array(await response.arrayBuffer()) : null;
  const known = lines.length > 0 ? lines : receiptOfProblem(problem);
  const from = question.from ?? (known.length || fromDefault);
  return { operation, status: response.status, ...head, size: value?.length ?? body?.value.length ?? 0, value, problem, lines: known, raw, ack: required(question.ack, from), from, ms: performance.now() - began };
}
