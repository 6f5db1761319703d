// Each model with its replicas, and the buttons that take one out and bring it back.

import { post } from "./api.js";
import { fullness, meter } from "./charts.js";
import { badge, by, columns, empty, h, say, table } from "./dom.js";
import { count, dollars, rate, seconds, share } from "./format.js";

const TONES = {
  healthy: "good", starting: "info", unhealthy: "bad", dead: "bad", leaving: "warn", drained: "warn",
};
const NAMES = columns("Replica", "State", "Requests", ">Running", ">Waiting", "KV cache", "Prefix hits", "Action");
const asked = new Set(); // replicas whose change is on its way

export function models(now) {
  if (!now.models.length) return [empty("No model is served yet.")];
  return now.models.map((model) => {
    const rows = model.replicas.map((replica) => ({ key: replica.name, cells: cells(model, replica) }));
    const figures = Object.entries(figuresOf(model));
    return h("section", { class: "panel", "aria-label": model.name, "data-key": model.name },
      h("h2", { class: "name" }, model.name),
      h("dl", { class: "figures" },
        figures.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      rows.length
        ? table(`Replicas of ${model.name}`, NAMES, rows, "even")
        : empty("It has no replica now: its requests fail until one is found."));
  });
}

function figuresOf(model) {
  const { ttft, tpot, requests, output_tokens } = model.traffic;
  const waiting = Object.entries(model.waiting).filter(([, number]) => number);
  return {
    requests: `${rate(requests)} /s`,
    "first token p50": seconds(ttft.p50),
    "first token p99": seconds(ttft.p99),
    "a token p50": seconds(tpot.p50),
    output: `${rate(output_tokens)} tok/s`,
    waiting: waiting.map(([name, number]) => `${count(number)} ${name}`).join(", ") || "none",
    "KV cache": share(model.kv_usage),
    "prefix hits": share(model.prefix_hits),
    "per 1M tokens": dollars(model.dollars_per_million),
  };
}

function cells(model, replica) {
  const load = replica.capacity ? replica.requests / replica.capacity : null;
  const requests = count(replica.requests);
  const verb = replica.drained ? "Bring back" : "Drain";
  return [
    replica.name,
    h("span", { class: "state" }, badge(replica.state, TONES[replica.state] ?? "unknown"),
      replica.reason && h("span", { class: "soft" }, replica.reason)),
    load === null ? requests : meter(load, `${requests} of ${count(replica.capacity)}`, fullness(load)),
    count(replica.running), count(replica.waiting),
    meter(replica.kv_usage, share(replica.kv_usage, 0), fullness(replica.kv_usage)),
    meter(replica.prefix_hits, share(replica.prefix_hits, 0), "green"),
    h("button", {
      type: "button",
      "aria-label": `${verb} ${replica.name} of ${model.name}`,
      "data-action": replica.drained ? "restore" : "drain",
      "data-model": model.name,
      "data-replica": replica.name,
      disabled: asked.has(`${model.name} ${replica.name}`),
    }, verb),
  ];
}

function confirmed(title, text, yes) {
  const dialog = by("confirm");
  by("confirm-title").textContent = title;
  by("confirm-text").textContent = text;
  by("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** The buttons. Taking a replica out is asked twice; bringing it back harms nobody. */
export function drainButtons(again) {
  by("body-models").addEventListener("click", async (event) => {
    const button = event.target.closest("[data-action]");
    if (!button) return;
    const { action, model, replica } = button.dataset;
    const drained = action === "drain";
    const text = `${replica} of ${model} finishes what it has and gets nothing new, until it is brought back.`;
    if (drained && !(await confirmed(`Drain ${replica}?`, text, "Drain"))) return;
    const name = `${model} ${replica}`;
    asked.add(name);
    again();
    try {
      await post("admin/backends/drain", { model, replica, drained });
      say(drained ? `${replica} gets no new requests.` : `${replica} takes requests again.`);
    } catch (error) {
      say(`${replica} was not changed: ${error.message}`);
    }
    asked.delete(name);
    again();
  });
}
