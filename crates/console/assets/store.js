// What the page knows: the session, the newest frame and some before it. Bounded: a page may stay open for days.

import { json } from "./api.js";
import { follow } from "./stream.js";
import { fromBase64 } from "./format.js";

/** Frames that are kept for rates "of the last ten seconds". */
const FRAMES_MAX = 12;
const CANARY_SECONDS_MAX = 180;

/** @typedef {import("./stream.js").Link} Link */

class Store {
  constructor() {
    /** @type {Session | null} */
    this.session = null;
    /** @type {Series[]} */
    this.table = [];
    /** @type {Frame[]} */
    this.frames = [];
    /** @type {Link} */
    this.link = { state: "connecting", why: "", retryMs: 0 };
    /** @type {Placement | null} */
    this.placement = null;
    /** @type {{at: number, available: boolean | null}[]} */
    this.availability = [];
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    this.placementAsked = 0;
    /** How many frames have come. */
    this.taken = 0;
  }

  /** The newest frame. @returns {Frame | null} */
  get frame() {
    return this.frames[this.frames.length - 1] ?? null;
  }

  /** The oldest frame that is kept, some ten seconds ago. @returns {Frame | null} */
  get before() {
    return this.frames.length > 1 ? this.frames[0] ?? null : null;
  }

  /** @param {() => void} listener @returns {() => void} */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  changed() {
    for (const listener of this.listeners) listener();
  }

  /** @param {Frame} frame */
  take(frame) {
    this.taken += 1;
    this.frames.push(frame);
    if (this.frames.length > FRAMES_MAX) this.frames.shift();
    this.availability.push({ at: frame.at_ms, available: frame.canary ? frame.canary.available : null });
    if (this.availability.length > CANARY_SECONDS_MAX) this.availability.shift();
    this.askPlacement(frame);
    this.changed();
  }

  /** Asks for the layout where it is not known, at most every ten seconds. @param {Frame} frame */
  askPlacement(frame) {
    const index = frame.nodes.findIndex((node) => node.state === "up");
    if (this.placement || index < 0 || frame.at_ms - this.placementAsked < 10000) return;
    this.placementAsked = frame.at_ms;
    json(`/api/nodes/${index}/layout`).then((layout) => {
      this.placement = { ...layout, preference: fromBase64(layout.preference) };
      this.changed();
    }, () => {});
  }

  start() {
    void follow((frame) => this.take(frame), (link) => {
      this.link = link;
      if (link.state === "live" && !this.session) void this.introduce();
      this.changed();
    });
  }

  /** Asks what console this is; again with the next connection, if that fails. */
  async introduce() {
    [this.session, this.table] = await Promise.all([json("/api/session"), json("/api/series")]).catch(() => [this.session, this.table]);
    this.changed();
  }

  /** Whether the console was started with at least this level. @param {"write" | "lab"} level */
  may(level) {
    const order = ["read", "write", "lab"];
    return order.indexOf(this.session?.level ?? "read") >= order.indexOf(level);
  }
}

export const store = new Store();
