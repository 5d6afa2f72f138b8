// The frame around the pages: navigation, the state of the connection, light and dark.

import { html, render, useEffect, useReducer, useState } from "./preact.js";
import { takeToken } from "./api.js";
import { store } from "./store.js";
import { State } from "./parts.js";
import { verdictOf, worst } from "./verdict.js";
import { Overview } from "./overview.js";
import { Cluster } from "./cluster.js";
import { Consistency } from "./consistency.js";
import { Storage } from "./storage.js";
import { Load } from "./load.js";
import { Data } from "./data.js";
import { Lab } from "./lab.js";

/** @type {[string, string, any][]} */
const PAGES = [
  ["overview", "Overview", Overview], ["cluster", "Cluster", Cluster], ["consistency", "Consistency", Consistency], ["storage", "Storage", Storage],
  ["load", "Load", Load], ["data", "Data", Data], ["lab", "Lab", Lab],
];

/** A frame older than this is said to be old. */
const OLD_MS = 4000;

/** Which page the URL names. */
const current = () => PAGES.find(([id]) => location.hash === `#/${id}`) ?? PAGES[0];

/** @param {string} theme "light", "dark", or "" for what the system says. */
function applyTheme(theme) {
  const dark = theme === "dark" || (theme === "" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

/** @returns {[string, (theme: string) => void]} */
function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem("kvorum-theme") ?? "");
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const follow = () => { applyTheme(localStorage.getItem("kvorum-theme") ?? ""); store.changed(); };
    media.addEventListener("change", follow);
    return () => media.removeEventListener("change", follow);
  }, []);
  const change = (/** @type {string} */ next) => {
    if (next) localStorage.setItem("kvorum-theme", next);
    else localStorage.removeItem("kvorum-theme");
    applyTheme(next);
    setTheme(next);
  };
  return [theme, change];
}

/** What is wrong with the connection to the console, if anything is. @param {{now: number}} props */
function LinkBanner({ now }) {
  const { link, frame } = store;
  if (link.state === "refused") {
    return html`<div class="banner bad" role="alert"><${State} mood="bad">refused<//> ${link.why} Open the whole URL that the console printed: the part after # is the token.</div>`;
  }
  const old = frame !== null && now - frame.at_ms > OLD_MS && link.state !== "live";
  if (link.state === "lost") {
    return html`<div class="banner warning" role="alert"><${State} mood="warning">no connection<//> ${link.why}. ${old ? "What is shown is old. " : ""}The page tries again by itself.</div>`;
  }
  return null;
}

/** @param {{page: string}} props */
function Navigation({ page }) {
  return html`<nav aria-label="Pages"><ul>${PAGES.map(([id, title]) => html`<li key=${id}><a href=${`#/${id}`} aria-current=${id === page ? "page" : undefined}>${title}</a></li>`)}</ul></nav>`;
}

/** @param {{theme: string, onTheme: (theme: string) => void}} props */
function Header({ theme, onTheme }) {
  const { frame, session, link } = store;
  const severity = frame ? worst(verdictOf(frame, store.placement)) : "off";
  const word = { good: "works", warning: "attention", bad: "fails", off: link.state === "lost" || link.state === "refused" ? "no connection" : "connecting" }[severity];
  const cluster = frame?.nodes.find((node) => node.state === "up")?.stats?.cluster;
  return html`<header><a class="brand" href="#/overview">kvorum</a> <${State} mood=${link.state === "lost" ? "off" : severity}>${word}<//>
    <span class="dim facts">${cluster && html`<span>cluster <code>${cluster}</code></span>`}${session && html`<span>level <b>${session.level}</b></span>`}</span>
    <label class="theme" for="theme">Colours <select id="theme" value=${theme} onChange=${(/** @type {any} */ event) => onTheme(event.target.value)}>
      <option value="">system</option><option value="light">light</option><option value="dark">dark</option></select></label></header>`;
}

/** Draws again with each frame, but not while nobody looks. */
function useStore() {
  const [, again] = useReducer((/** @type {number} */ n) => n + 1, 0);
  useEffect(() => {
    const draw = () => { if (!document.hidden) again(0); };
    document.addEventListener("visibilitychange", draw);
    addEventListener("hashchange", draw);
    const leave = store.subscribe(draw);
    return () => {
      leave();
      document.removeEventListener("visibilitychange", draw);
      removeEventListener("hashchange", draw);
    };
  }, []);
}

function App() {
  useStore();
  const [theme, setTheme] = useTheme();
  const [id, title, Page] = /** @type {[string, string, any]} */ (current());
  useEffect(() => { document.title = `${title} · kvorum`; }, [title]);
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
    <${Header} theme=${theme} onTheme=${setTheme} /><${Navigation} page=${id} />
    <main id="main" tabindex="-1" key=${id} data-seconds=${store.taken}><h1 class="sr">${title}</h1><${LinkBanner} now=${Date.now()} />
      ${store.frame ? html`<${Page} frame=${store.frame} />` : html`<p class="dim waiting" role="status">Waiting for the first figures…</p>`}</main>`;
}

applyTheme(localStorage.getItem("kvorum-theme") ?? "");
takeToken();
const place = /** @type {HTMLElement} */ (document.getElementById("app"));
place.replaceChildren();
render(html`<${App} />`, place);
store.start();
// The URL of another console, opened in this tab.
addEventListener("hashchange", () => { if (takeToken()) location.reload(); });
