// The requests that have ended lately, each with where its time went.

import { phaseClass, phaseLegend, timeline } from "./charts.js";
import { badge, by, columns, empty, h, lasts, table } from "./dom.js";
import { clock, count, dollars, milliseconds, plural } from "./format.js";

const TONES = { ok: "good", failed: "bad", shed: "warn", rejected: "warn", aborted: "unknown" };
const WORDS = { ok: "answered" };
const MOST = 200; // that are kept here
const opened = new Set(); // keys of requests whose details are shown
let kept = []; // the newest first: the stream tells of the latest only
let held = null; // what is shown while the list is paused

const ended = (request) => request.at + request.ms / 1000;
const keyOf = (request) => `${request.id} ${request.arrived}`; // clients may give one id to several

/** Keep these too; those that are known already stay where they are. */
export function remember(recent) {
  const newer = new Set(recent.map(keyOf));
  const all = [...recent, ...kept.filter((request) => !newer.has(keyOf(request)))];
  kept = all.sort((a, b) => ended(b) - ended(a)).slice(0, MOST);
}

export function requests() {
  const shown = held ?? kept;
  const kind = by("filter-kind").value;
  const text = by("filter-text").value.trim().toLowerCase();
  const found = shown.filter((request) => fits(request, kind, text));
  if (!shown.length) return [empty("Nobody has asked anything yet. Requests appear here when they have ended.")];
  if (!found.length) return [phaseLegend(), empty(`None of the ${plural(shown.length, "recent request")} fits.`)];
  const names = ["ended", "model", "outcome", "time", "first token", "total", "tokens", "cost"];
  return [
    phaseLegend(),
    h("div", { class: "request-head request-columns", "aria-hidden": "true" },
      names.map((name) => h("span", {}, name))),
    h("ul", { class: "requests" }, found.map((request) => requestRow(request, true))),
  ];
}

function fits(request, kind, text) {
  if (kind === "slow" && !request.causes.length) return false;
  if (kind !== "all" && kind !== "slow" && request.outcome !== kind) return false;
  const { model, served_by, tier, tenant, id, code, causes } = request;
  return [model, served_by, tier, tenant, id, code, ...causes].some((field) => field.toLowerCase().includes(text));
}

/** A row of the list; with `opens` it is a button that shows the details. */
export function requestRow(request, opens) {
  const open = opens && opened.has(keyOf(request));
  return lasts("li", keyOf(request), open, () => rowOf(request, opens, open)); // it has ended: it stays as it is
}

function rowOf(request, opens, open) {
  const elsewhere = request.served_by && request.served_by !== request.model;
  const cells = [
    h("span", { class: "when soft" }, clock(ended(request))),
    h("span", { class: "what" }, h("b", {}, request.model || "–"),
      elsewhere && ` → ${request.tier || request.served_by}`, h("span", { class: "soft who" }, request.tenant)),
    h("span", { class: "outcome" },
      badge(WORDS[request.outcome] ?? request.outcome, TONES[request.outcome] ?? "unknown"),
      request.causes.length > 0 && h("span", { class: "cause" }, request.causes[0])),
    timeline(request),
    figure("first token", milliseconds(request.ttft_ms)),
    figure("total", milliseconds(request.ms)),
    figure("tokens", `${count(request.prompt_tokens)} → ${count(request.completion_tokens)}`),
    figure("cost", dollars(request.dollars)),
  ];
  if (!opens) return [h("div", { class: "request-head" }, cells)];
  const pressed = { "aria-expanded": String(open), "data-action": "expand", "data-id": keyOf(request) };
  return [h("button", { type: "button", class: "request-head", ...pressed }, cells), open && details(request)];
}

const figure = (name, text) => h("span", { class: "number", "data-name": name }, text);

function details(request) {
  const facts = {
    request: request.id,
    operation: request.operation,
    status: `${request.status} ${request.code}`,
    "answered by": request.served_by || "–",
    tier: request.tier || "–",
    class: request.service_class || "–",
    "cached tokens": count(request.cached_tokens),
    "slow because": request.causes.join(", ") || "it was not slow",
  };
  const row = (phase, index) => ({
    key: String(index),
    cells: [
      h("span", { class: "phase-name" }, h("span", { class: `swatch ${phaseClass(phase)}` }), phase.name),
      `${phase.detail || "–"}${phase.failed ? ", failed" : ""}`, milliseconds(phase.start), milliseconds(phase.ms),
    ],
  });
  const names = columns("Phase", "Detail", ">Begins at", ">Takes");
  return h("div", { class: "request-detail" },
    h("dl", { class: "facts" },
      Object.entries(facts).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    request.phases.length
      ? table(`Phases of request ${request.id}`, names, request.phases.map(row))
      : empty("No phases were recorded of it."));
}

/** Filters, the pause button, and opening a request's details. */
export function requestControls(again) {
  by("filters").addEventListener("submit", (event) => event.preventDefault());
  by("filters").addEventListener("input", again);
  by("pause").addEventListener("click", () => {
    held = held ? null : kept;
    by("pause").setAttribute("aria-pressed", String(held !== null));
    by("pause").textContent = held ? "Go on" : "Pause";
    again();
  });
  by("body-requests").addEventListener("click", (event) => {
    const id = event.target.closest("[data-action=expand]")?.dataset.id;
    if (id === undefined) return;
    if (!opened.delete(id)) opened.add(id);
    again();
  });
}
