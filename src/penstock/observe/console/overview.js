// The first view: is it well, how busy is it, and what is slow.

import { bars, CHART_SECONDS, fullness, meter, sparkline } from "./charts.js";
import { badge, empty, h, panel, table } from "./dom.js";
import { bytes, count, dollars, lasting, plural, rate, seconds, share } from "./format.js";
import { requestRow } from "./requests.js";

const SEVERITY = { page: "bad", warn: "warn", info: "info" };
const OBJECTIVE = { page: "bad", warn: "warn", ok: "good" };
const CLASSES = ["interactive", "standard", "batch"];
const SHOWN_REQUESTS = 6;

export function overview(now) {
  return [
    wellbeing(now),
    tiles(now),
    h("div", { class: "columns wide-left" }, objectives(now), h("div", { class: "stack" }, queue(now), causes(now))),
    models(now),
    now.gpus.length ? gpus(now) : null,
    latest(now),
  ];
}

function wellbeing(now) {
  if (!now.alerts.length) {
    const missed = now.objectives.filter((each) => each.state === "page" || each.state === "warn").length;
    return h("p", { class: `wellbeing ${missed || now.draining ? "warn" : "good"}`, "data-key": "wellbeing" },
      now.draining ? "The server is shutting down: it finishes what it has and takes nothing new."
        : missed ? `No alert is firing, but ${plural(missed, "objective is", "objectives are")} using up the error budget too fast.`
        : "All is well: no alert is firing.");
  }
  return h("section", { class: "alerts", "aria-label": "Firing alerts", "data-key": "alerts" },
    h("h2", { class: "sr" }, plural(now.alerts.length, "alert is", "alerts are") + " firing"),
    h("ul", {}, now.alerts.map((alert) =>
      h("li", { class: `alert ${SEVERITY[alert.severity] ?? "info"}`, "data-key": alert.name + JSON.stringify(alert.labels) },
        badge(alert.severity, SEVERITY[alert.severity] ?? "info"),
        h("span", { class: "alert-text" }, h("b", {}, alert.name), " ", alert.summary,
          Object.entries(alert.labels).map(([name, value]) => h("span", { class: "tag" }, `${name} ${value}`))),
        h("span", { class: "soft since" }, `for ${lasting(now.at - alert.since)}`)))));
}

function tile(name, figure, details, chart) {
  const [value, unit] = figure.split(/ (.*)/);
  return h("section", { class: "panel tile", "aria-label": name },
    h("h2", {}, name),
    h("p", { class: "figure" }, value, unit && h("span", { class: "unit" }, ` ${unit}`)),
    h("p", { class: "soft" }, details), chart);
}

function tiles(now) {
  const points = now.history;
  const of = (field) => points.map((point) => point[field]);
  const spark = (name, text, series, limit = null) => {
    const known = series.flatMap((line) => line.values).filter((value) => value !== null);
    const most = known.length ? `highest ${text(Math.max(...known))}` : "nothing yet";
    return h("div", { class: "chart" },
      sparkline(`${name} over the last ${CHART_SECONDS / 60} minutes, ${most}`, points, series, now.at, limit),
      h("p", { class: "scale", "aria-hidden": "true" }, h("span", {}, `${CHART_SECONDS / 60} min`), h("span", {}, most)));
  };
  const bound = now.objectives.find((each) => each.name === "ttft" && each.bound !== null)?.bound ?? null;
  const waiting = now.models.reduce((sum, model) => sum + Object.values(model.waiting).reduce((a, b) => a + b, 0), 0);
  const running = now.models.reduce((sum, model) => sum + model.running, 0);
  const { traffic } = now;
  const lost = [traffic.failed && `${rate(traffic.failed)} failed`, traffic.shed && `${rate(traffic.shed)} shed`].filter(Boolean);
  return h("div", { class: "tiles" },
    tile("Requests", `${rate(traffic.requests)} /s`, lost.length ? lost.join(", ") : "none failed or shed",
      spark("Requests a second", rate, [{ tone: "blue", fill: true, values: of("requests") }])),
    tile("Time to first token", seconds(traffic.ttft.p50), `p99 ${seconds(traffic.ttft.p99)}${bound === null ? "" : ` · goal ${seconds(bound)}`}`,
      spark("Time to first token", seconds, [{ tone: "orange", values: of("ttft_p99") }, { tone: "blue", fill: true, values: of("ttft_p50") }], bound)),
    tile("Output", `${rate(traffic.output_tokens)} tok/s`, `input ${rate(traffic.input_tokens)} tok/s · ${seconds(traffic.tpot.p50)} a token`,
      spark("Output tokens a second", rate, [{ tone: "green", fill: true, values: of("output_tokens") }])),
    tile("Waiting", count(waiting), `${count(running)} running · end to end p50 ${seconds(traffic.e2e.p50)}`,
      spark("Requests that wait", count, [{ tone: "purple", fill: true, values: of("waiting") }])));
}

function objectives(now) {
  const goal = (each) => `${each.name === "ttft" ? `first token in ${seconds(each.bound)}` : each.name === "errors" ? "answered without error" : `${each.name}${each.bound === null ? "" : ` in ${seconds(each.bound)}`}`}`;
  const burn = (value) => (value === null ? "–" : `${rate(value)}×`);
  if (!now.objectives.length) return panel("Objectives", empty("No objective is configured. The section ", h("code", {}, "slo"), " of penstock.yaml has them."));
  const columns = [{ name: "Objective" }, { name: "Model" }, { name: "Target", number: true }, { name: "Last hour", number: true }, { name: "Burn 5 min", number: true }, { name: "Burn 1 h", number: true }, { name: "State" }];
  return panel("Objectives",
    table("Objectives", columns, now.objectives.map((each) => ({
      key: `${each.name} ${each.model}`,
      cells: [goal(each), each.model || "all", share(each.target, 3), share(each.good, 2), burn(each.burn_5m), burn(each.burn_1h), badge(each.state, OBJECTIVE[each.state] ?? "unknown")],
    }))),
    h("p", { class: "soft note" }, "Burn: how many times faster than allowed the error budget is used up."));
}

function queue(now) {
  const waiting = new Map(CLASSES.map((name) => [name, 0]));
  for (const model of now.models) for (const [name, number] of Object.entries(model.waiting)) waiting.set(name, (waiting.get(name) ?? 0) + number);
  return panel("Queue by class", bars([...waiting].map(([name, value]) => ({ name, value, text: count(value), tone: "purple" }))));
}

function causes(now) {
  const rows = Object.entries(now.causes).sort((a, b) => b[1] - a[1]);
  return panel("Why requests were slow",
    rows.length ? bars(rows.map(([name, value]) => ({ name, value, text: count(value), tone: "orange" })))
      : empty(`No request was slow in the last ${lasting(now.window)}.`));
}

function models(now) {
  if (!now.models.length) return panel("Models", empty("No model is served yet."));
  const columns = [{ name: "Model" }, { name: "Requests/s", number: true }, { name: "TTFT p50", number: true }, { name: "TTFT p99", number: true }, { name: "Tokens/s", number: true }, { name: "Running", number: true }, { name: "KV cache" }, { name: "Prefix hits" }, { name: "$ / 1M tokens", number: true }, { name: "Replicas", number: true }];
  return panel("Models", table("Models", columns, now.models.map((model) => {
    const healthy = model.replicas.filter((each) => each.state === "healthy").length;
    return {
      key: model.name,
      cells: [model.name, rate(model.traffic.requests), seconds(model.traffic.ttft.p50), seconds(model.traffic.ttft.p99), rate(model.traffic.output_tokens), count(model.running),
        meter(model.kv_usage, share(model.kv_usage, 0), fullness(model.kv_usage)), meter(model.prefix_hits, share(model.prefix_hits, 0), "green"), dollars(model.dollars_per_million),
        h("span", { class: healthy < model.replicas.length ? "warn-text" : null }, `${healthy} of ${model.replicas.length}`)],
    };
  })));
}

function gpus(now) {
  const columns = [{ name: "GPU" }, { name: "Memory" }, { name: "Utilisation" }, { name: "Temperature", number: true }, { name: "Power", number: true }];
  return panel("GPUs", table("GPUs", columns, now.gpus.map((gpu) => ({
    key: String(gpu.index),
    cells: [`${gpu.index} · ${gpu.name}`, meter(gpu.memory_used / gpu.memory_total, `${bytes(gpu.memory_used)} of ${bytes(gpu.memory_total)}`, fullness(gpu.memory_used / gpu.memory_total)),
      meter(gpu.utilisation, share(gpu.utilisation, 0)), gpu.temperature === null ? "–" : `${count(gpu.temperature)} °C`, gpu.power === null ? "–" : `${count(gpu.power)} W`],
  }))));
}

function latest(now) {
  if (!now.recent.length) return panel("Latest requests", empty("Nobody has asked anything yet. The ", h("a", { href: "#playground" }, "playground"), " is a place to begin."));
  return panel("Latest requests",
    h("ul", { class: "requests brief" }, now.recent.slice(0, SHOWN_REQUESTS).map((request) => requestRow(request, now.at, false))),
    h("p", { class: "note" }, h("a", { href: "#requests" }, "All recent requests")));
}
