// A console without nodes: the pages from the disk with the headers of the real one, and the API from the recording.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { answer, frameAt } from "./recorded.mjs";

export const ASSETS = new URL("../../assets/", import.meta.url);
export const TOKEN = "t0ken-of-the-tests";
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", LICENSE: "text/plain; charset=utf-8" };
const SECURITY = { "content-security-policy": CSP, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer" };

/** What the real console leaves out of a module before it compresses it: comments and indentation (see build.rs). */
export const compact = (text) => text.replace(/\/\*\*[^]*?\*\/\s?/g, "").replace(/^\s*\/\/.*\n/gm, "").replace(/^ +/gm, "");

/** The bytes of a page as they are served. */
export async function served(name) {
  const bytes = await readFile(new URL(name, ASSETS));
  return gzipSync(name.endsWith(".js") ? compact(bytes.toString()) : bytes, { level: 9 });
}

/** A page from the disk, compressed as the real console does. */
async function asset(path, response) {
  const name = path === "/" ? "index.html" : path.slice(1);
  if (!/^[\w.-]+$/.test(name)) return void response.writeHead(404).end();
  try {
    const bytes = await served(name);
    response.writeHead(200, { ...SECURITY, "content-type": TYPES[name.split(".").pop()] ?? "application/octet-stream", "content-encoding": "gzip" }).end(bytes);
  } catch {
    response.writeHead(404, SECURITY).end();
  }
}

/** Frames, one after the other; the first at once. `paceMs` is how long a second lasts. */
function stream(server, response) {
  response.writeHead(200, { ...SECURITY, "content-type": "text/event-stream", "cache-control": "no-store" });
  let second = server.second;
  const send = () => server.mute || response.write(`data: ${JSON.stringify(server.frame(second++))}\n\n`);
  for (let early = 0; early < server.atOnce; early += 1) send();
  // Without a pace time stands still, and a comment keeps the connection.
  const timer = server.paceMs > 0 ? setInterval(send, server.paceMs) : setInterval(() => response.write(":\n\n"), 1000);
  server.streams.add(response);
  response.on("close", () => {
    clearInterval(timer);
    server.streams.delete(response);
  });
}

/** `frame` gives the frame of a second; without it is the recorded one.
 * @param {{scene?: string, level?: string, paceMs?: number, atOnce?: number, port?: number, frame?: (second: number) => any}} options */
export async function start({ scene = "healthy", level = "lab", paceMs = 1000, atOnce = 11, port = 0, frame } = {}) {
  const server = { scene, paceMs, atOnce, second: 0, opened: 0, mute: false, streams: new Set(), state: { level, values: new Map() }, requests: [], frame: frame ?? ((second) => frameAt(server.scene, second)) };
  const http = createServer((request, response) => {
    const url = new URL(request.url, "http://localhost");
    server.requests.push(`${request.method} ${url.pathname}${url.search}`);
    if (!url.pathname.startsWith("/api/")) return void asset(url.pathname, response);
    if (request.headers["kvorum-console"] !== TOKEN) return void response.writeHead(401, { "content-type": "application/problem+json" }).end(JSON.stringify({ title: "Unauthorized", detail: "The token is not this console's." }));
    if (url.pathname === "/api/stream") {
      server.opened += 1;
      return void stream(server, response);
    }
    const given = answer(server.scene, request.method, url, server.state);
    if (!given) return void response.writeHead(404).end();
    response.writeHead(given.status, { ...SECURITY, ...(given.type ? { "content-type": given.type } : {}), ...given.head }).end(given.body);
  });
  await new Promise((resolve) => http.listen(port, "127.0.0.1", resolve));
  server.url = `http://127.0.0.1:${http.address().port}/`;
  server.stop = () => {
    for (const open of server.streams) open.destroy();
    http.closeAllConnections();
    return new Promise((resolve) => http.close(resolve));
  };
  return server;
}
