// What the tests share: the modules of npm, which live outside the tree, and a browser that watches what pages do.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { existsSync } from "node:fs";
import { TOKEN, start } from "./server.mjs";

const modules = process.env.CONSOLE_TEST_MODULES;
if (!modules) throw new Error("CONSOLE_TEST_MODULES must name the directory in which `npm ci` put this package's modules: run these through cargo test");

export const require = createRequire(pathToFileURL(`${modules}/x`));
export const fromNpm = (name) => import(pathToFileURL(require.resolve(name)));
const { chromium } = require("playwright-core");

const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) => existsSync(path));
/** As root the browser's own sandbox does not start; the rest makes pictures the same everywhere. */
const FLAGS = [...(process.getuid() === 0 ? ["--no-sandbox"] : []), "--font-render-hinting=none", "--disable-lcd-text", "--force-color-profile=srgb", "--js-flags=--expose-gc"];

export const launch = () => chromium.launch({ executablePath: CHROMIUM, args: FLAGS });

/** A page, and what it did that no page may: each in words. @param {{width?: number, height?: number, theme?: string, scale?: number}} [options] */
export async function open(browser, url, { width = 1280, height = 800, theme = "light", scale = 1 } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: "reduce", deviceScaleFactor: scale });
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`));
    document.addEventListener("DOMContentLoaded", () => document.documentElement.style.setProperty("--font", "DejaVu Sans"));
  });
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("request", (request) => {
    const asked = new URL(request.url());
    if (asked.protocol !== "data:" && asked.protocol !== "blob:" && asked.origin !== new URL(url).origin) faults.push(`request elsewhere: ${asked}`);
  });
  await page.goto(url);
  return { page, faults, close: () => context.close() };
}

/** A page of a console without nodes. However a test ends, both are over: else node would wait for them for ever.
 * @param {(view: any, server: any) => Promise<any>} run */
export async function recorded(browser, options, run) {
  const server = await start(options);
  try {
    const view = await open(browser, `${server.url}#${options.token ?? TOKEN}`, options);
    try {
      return await run(view, server);
    } finally {
      await view.close();
    }
  } finally {
    await server.stop();
  }
}

/** Shows a page of the console and waits until it does. */
export async function show(page, name) {
  await page.evaluate((to) => { location.hash = `#/${to}`; }, name);
  await page.locator(`nav a[aria-current=page][href="#/${name}"]`).waitFor();
  await page.locator("main .panel").first().waitFor();
}

/** Waits until a condition holds. */
export async function until(what, condition, withinMs = 10000, everyMs = 20) {
  const end = Date.now() + withinMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not within ${withinMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}

export const PAGES = ["overview", "cluster", "consistency", "storage", "load", "data", "lab"];
