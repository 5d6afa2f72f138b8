// Records a scene from a console of real nodes: `node record.mjs 'http://127.0.0.1:PORT/#TOKEN' healthy|paused`. Two frames,
// ten seconds apart, and what each node answers besides.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { gunzipSync, gzipSync } from "node:zlib";

const FILE = new URL("fixtures/recorded.json.gz", import.meta.url);
const [, , address, scene] = process.argv;
const console_ = new URL(address);
const headers = { "kvorum-console": console_.hash.slice(1) };
const ask = async (path) => {
  const response = await fetch(new URL(path, console_), { headers });
  return response.ok ? response.json() : undefined;
};

/** The eleven next frames. */
async function frames(many) {
  const response = await fetch(new URL("/api/stream", console_), { headers });
  const [decoder, all] = [new TextDecoder(), []];
  let rest = "";
  for await (const bytes of response.body) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop();
    all.push(...lines.filter((line) => line.startsWith("data:")).map((line) => JSON.parse(line.slice(5))));
    if (all.length >= many) return all;
  }
  throw new Error("the stream ended");
}

const recording = existsSync(FILE) ? JSON.parse(gunzipSync(readFileSync(FILE)).toString()) : {};
const all = await frames(11);
const session = await ask("/api/session");
const pages = await Promise.all(session.nodes.map(async (_, index) => Object.fromEntries(await Promise.all(["repair", "cluster", "hot", "slow"].map(async (page) => [page, await ask(`/api/nodes/${index}/${page}`)])))));
recording[scene] = { frames: [all[0], all[10]], pages };
recording.series = await ask("/api/series");
recording.layout = (await ask("/api/nodes/0/layout")) ?? recording.layout;
recording.located = (await ask("/api/nodes/0/layout?id=j")) ?? recording.located;
writeFileSync(FILE, gzipSync(JSON.stringify(recording), { level: 9 }));
