// The page as a whole: which view is shown, the connection, the key, the theme.

import { key, request } from "./api.js";
import { by, render, say } from "./dom.js";
import { lasting, plural } from "./format.js";
import { follow } from "./live.js";
import { drainButtons, models } from "./models.js";
import { overview } from "./overview.js";
import { offerModels, playground } from "./playground.js";
import { reportButtons, reports } from "./reports.js";
import { remember, requestControls, requests } from "./requests.js";
import { routing, tenants } from "./routing.js";

// Views that are drawn from the state. The playground keeps its own.
const DRAWN = { overview, requests, models, routing, tenants, reports };
const VIEWS = [...Object.keys(DRAWN), "playground"];
const CONNECTION = { connecting: "Connecting", live: "Live", reconnecting: "Reconnecting", locked: "Locked" };
const THEME = "penstock.theme";

let latest = null;
let shown = "overview";
let alerts = null; // the names of those that fire, once they are known

function draw() {
  if (!latest) return;
  if (DRAWN[shown]) render(by(`body-${shown}`), ...DRAWN[shown](latest));
  by("about").textContent = [
    `Version ${latest.version}`, `up ${lasting(latest.uptime)}`,
    plural(latest.processes, "front process", "front processes"), `figures of the last ${lasting(latest.window)}`,
  ].join(" · ");
}

/** New alerts are said aloud once, whatever view is shown; the title counts them. */
function heed(snapshot) {
  const firing = new Set(snapshot.alerts.filter((alert) => alert.severity !== "info").map((alert) => alert.name));
  const begun = alerts && [...firing].filter((name) => !alerts.has(name));
  if (begun?.length) say(`${begun.join(", ")} ${begun.length > 1 ? "are" : "is"} firing.`);
  else if (alerts?.size && !firing.size) say("No alert is firing any more.");
  alerts = firing;
  title();
}

function title() {
  const name = by(`title-${shown}`).textContent;
  document.title = `${alerts?.size ? `(${alerts.size}) ` : ""}${name} · Penstock`;
}

function route(focus) {
  const wanted = location.hash.slice(1);
  if (wanted === "main") return;
  shown = VIEWS.includes(wanted) ? wanted : "overview";
  for (const view of VIEWS) by(`view-${view}`).hidden = view !== shown;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${shown}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  title();
  draw();
  if (shown === "requests") wholeList();
  if (shown === "playground") offerModels().catch((error) => error.wantsKey && wantKey(error));
  if (focus) {
    by(`title-${shown}`).focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

/** The stream tells of the latest requests only; all that are remembered are in the state. */
async function wholeList() {
  try {
    remember((await (await request("console/state")).json()).recent);
    draw();
  } catch {
    // The stream says what is wrong, and asks for a key where one is missing.
  }
}

function connection(word, error) {
  const place = by("live");
  if (place.dataset.state !== word) {
    place.dataset.state = word;
    place.textContent = CONNECTION[word];
    document.body.classList.toggle("stale", word === "reconnecting");
  }
  const notice = by("notice");
  const sentence = word === "reconnecting" && error?.status ? error.message : "";
  notice.textContent = sentence;
  notice.hidden = !sentence;
}

/** Ask for a key until one is given; whoever waits goes on with it. */
function wantKey(error) {
  const dialog = by("key-dialog");
  by("key-error").textContent = key.get() || error.status === 403 ? error.message : "";
  by("key").value = "";
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => { // after which it can be opened again
      key.set(by("key").value.trim());
      by("forget").hidden = false;
      resolve();
    }, { once: true });
  });
}

function theme() {
  const kept = localStorage.getItem(THEME);
  if (kept) document.documentElement.dataset.theme = kept;
  by("theme").addEventListener("click", () => {
    const set = document.documentElement.dataset.theme;
    const dark = set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem(THEME, document.documentElement.dataset.theme);
  });
}

theme();
requestControls(draw);
drainButtons(draw);
reportButtons();
playground(wantKey);
by("key-dialog").addEventListener("cancel", (event) => event.preventDefault());
by("forget").hidden = !key.get();
by("forget").addEventListener("click", () => {
  key.forget();
  location.reload();
});
addEventListener("hashchange", () => route(true));
route(false);
follow({
  connection,
  key: wantKey,
  state: (snapshot) => {
    latest = snapshot;
    remember(snapshot.recent);
    heed(snapshot);
    draw();
  },
});
