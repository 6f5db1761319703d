// The first view: is it well, how busy is it, and what is slow.

import { bars, binned, chartSpan, fullness, mean, meter, most, sparkline } from "./charts.js";
import { badge, columns, empty, h, panel, table, tile } from "./dom.js";
import { bytes, count, dollars, lasting, plural, rate, seconds, share } from "./format.js";
import { requestRow } from "./requests.js";

const SEVERITY = { page: "bad", warn: "warn", info: "info" };
const OBJECTIVE = { page: "bad", warn: "warn", ok: "good" };
const CLASSES = ["interactive", "standard", "batch"];
const SHOWN_REQUESTS = 6;
const SHOWN_OBJECTIVES = 8;

export function overview(now) {
  const beside = h("div", { class: "stack" }, queue(now), causes(now));
  return [
    now.alerts.length ? alerts(now) : wellbeing(now),
    tiles(now),
    h("div", { class: "columns wide-left" }, objectives(now), beside),
    models(now),
    now.gpus.length ? gpus(now) : null,
    latest(now),
  ];
}

function wellbeing(now) {
  const missed = now.objectives.filter((each) => each.state === "page" || each.state === "warn").length;
  let sentence = "All is well: no alert is firing.";
  if (now.draining) sentence = "The server is shutting down: it finishes what it has and takes nothing new.";
  else if (missed) {
    const those = plural(missed, "objective is", "objectives are");
    sentence = `No alert is firing, but ${those} using up the error budget too fast.`;
  }
  const tone = missed || now.draining ? "warn" : "good";
  return h("p", { class: `wellbeing ${tone}`, "data-key": "wellbeing" }, sentence);
}

function alerts(now) {
  const row = (alert) => {
    const tone = SEVERITY[alert.severity] ?? "info";
    const labels = Object.entries(alert.labels);
    return h("li", { class: `alert ${tone}`, "data-key": alert.name + JSON.stringify(labels) },
      badge(alert.severity, tone),
      h("span", { class: "alert-text" }, h("b", {}, alert.name), " ", alert.summary,
        labels.map(([name, value]) => h("span", { class: "tag" }, `${name} ${value}`))),
      h("span", { class: "soft since" }, `for ${lasting(now.at - alert.since)}`));
  };
  return h("section", { class: "alerts", "aria-label": "Firing alerts", "data-key": "alerts" },
    h("h2", { class: "sr" }, `${plural(now.alerts.length, "alert is", "alerts are")} firing`),
    h("ul", {}, now.alerts.map(row)));
}

/** A chart of fields of the history: [[field, how seconds become a point, colour]], the last one filled. */
function chart(name, now, text, fields, limit = null) {
  const span = chartSpan(now.history, now.at);
  const series = fields.map(([field, of, tone], index) => ({
    tone, fill: index === fields.length - 1, points: binned(now.history, field, of),
  }));
  const values = series.flatMap((line) => line.points.map(([, value]) => value));
  const highest = most(values.filter((value) => value !== null));
  const said = highest === null ? "nothing yet" : `highest ${text(highest)}`;
  return h("div", { class: "chart" },
    sparkline(`${name} over the last ${lasting(span)}, ${said}`, series, now.at, span, limit),
    h("p", { class: "scale", "aria-hidden": "true" }, h("span", {}, lasting(span)), h("span", {}, said)));
}

function tiles(now) {
  const { traffic } = now;
  const bound = now.objectives.find((each) => each.name === "ttft" && each.bound !== null)?.bound ?? null;
  const waiting = now.models.flatMap((model) => Object.values(model.waiting)).reduce((a, b) => a + b, 0);
  const running = now.models.reduce((sum, model) => sum + model.running, 0);
  const lost = [
    traffic.failed && `${rate(traffic.failed)} failed`,
    traffic.shed && `${rate(traffic.shed)} shed`,
  ].filter(Boolean).join(", ");
  const goal = bound === null ? "" : ` · goal ${seconds(bound)}`;
  return h("div", { class: "tiles" },
    tile("Requests", `${rate(traffic.requests)} /s`, lost || "none failed or shed",
      chart("Requests a second", now, rate, [["requests", mean, "blue"]])),
    tile("Time to first token", seconds(traffic.ttft.p50), `p99 ${seconds(traffic.ttft.p99)}${goal}`,
      chart("Time to first token", now, seconds, [["ttft_p99", most, "orange"], ["ttft_p50", mean, "blue"]], bound)),
    tile("Output", `${rate(traffic.output_tokens)} tok/s`,
      `input ${rate(traffic.input_tokens)} tok/s · ${seconds(traffic.tpot.p50)} a token`,
      chart("Output tokens a second", now, rate, [["output_tokens", mean, "green"]])),
    tile("Waiting", count(waiting), `${count(running)} running · end to end p50 ${seconds(traffic.e2e.p50)}`,
      chart("Requests that wait", now, count, [["waiting", most, "purple"]])));
}

function goalOf(objective) {
  if (objective.name === "errors") return "answered without error";
  const bound = objective.bound === null ? "" : ` in ${seconds(objective.bound)}`;
  return `${{ ttft: "first token", tpot: "a token", e2e: "whole answer" }[objective.name] ?? objective.name}${bound}`;
}

function objectives(now) {
  if (!now.objectives.length) {
    const where = ["The section ", h("code", {}, "slo"), " of penstock.yaml has them."];
    return panel("Objectives", empty("No objective is configured. ", ...where));
  }
  const burn = (value) => (value === null ? "–" : `${rate(value)}×`);
  const urgency = (each) => ["page", "warn", "ok"].indexOf(each.state) + 4 * (each.state === "unknown");
  const sorted = [...now.objectives].sort(
    (a, b) => urgency(a) - urgency(b) || (b.burn_1h ?? 0) - (a.burn_1h ?? 0) || a.model.localeCompare(b.model));
  const row = (each) => ({
    key: `${each.name} ${each.model}`,
    cells: [
      goalOf(each), each.model || "all", share(each.target, 3), share(each.good, 2),
      burn(each.burn_5m), burn(each.burn_1h), badge(each.state, OBJECTIVE[each.state] ?? "unknown"),
    ],
  });
  const more = sorted.length - SHOWN_OBJECTIVES;
  const names = columns("Objective", "Model", ">Target", ">Last hour", ">Burn 5 min", ">Burn 1 h", "State");
  return panel("Objectives",
    table("Objectives", names, sorted.slice(0, SHOWN_OBJECTIVES).map(row)),
    h("p", { class: "soft note" }, "Burn: how many times faster than allowed the error budget is used up.",
      more > 0 && ` The ${plural(more, "objective")} that are not shown stand no worse.`));
}

function queue(now) {
  const waiting = new Map(CLASSES.map((name) => [name, 0]));
  for (const [name, number] of now.models.flatMap((model) => Object.entries(model.waiting))) {
    waiting.set(name, (waiting.get(name) ?? 0) + number);
  }
  const rows = [...waiting].map(([name, value]) => ({ name, value, text: count(value) }));
  return panel("Queue by class", bars(rows, "purple"));
}

function causes(now) {
  const rows = Object.entries(now.causes).sort((a, b) => b[1] - a[1])
    .map(([name, value]) => ({ name, value, text: count(value) }));
  const none = empty(`No request was slow in the last ${lasting(now.window)}.`);
  return panel("Why requests were slow", rows.length ? bars(rows, "orange") : none);
}

function models(now) {
  if (!now.models.length) return panel("Models", empty("No model is served yet."));
  const names = columns("Model", ">Requests/s", ">TTFT p50", ">TTFT p99", ">Tokens/s", ">Running", "KV cache",
    "Prefix hits", ">$ / 1M tokens", ">Replicas");
  const row = (model) => {
    const { traffic, replicas } = model;
    const healthy = replicas.filter((each) => each.state === "healthy").length;
    const all = h("span", { class: healthy < replicas.length && "warn-text" }, `${healthy} of ${replicas.length}`);
    return {
      key: model.name,
      cells: [
        model.name, rate(traffic.requests), seconds(traffic.ttft.p50), seconds(traffic.ttft.p99),
        rate(traffic.output_tokens), count(model.running),
        meter(model.kv_usage, share(model.kv_usage, 0), fullness(model.kv_usage)),
        meter(model.prefix_hits, share(model.prefix_hits, 0), "green"), dollars(model.dollars_per_million), all,
      ],
    };
  };
  return panel("Models", table("Models", names, now.models.map(row)));
}

function gpus(now) {
  const names = columns("GPU", "Memory", "Utilisation", ">Temperature", ">Power");
  const row = (gpu) => {
    const used = gpu.memory_used / gpu.memory_total;
    return {
      key: String(gpu.index),
      cells: [
        `${gpu.index} · ${gpu.name}`,
        meter(used, `${bytes(gpu.memory_used)} of ${bytes(gpu.memory_total)}`, fullness(used)),
        meter(gpu.utilisation, share(gpu.utilisation, 0)),
        gpu.temperature === null ? "–" : `${count(gpu.temperature)} °C`,
        gpu.power === null ? "–" : `${count(gpu.power)} W`,
      ],
    };
  };
  return panel("GPUs", table("GPUs", names, now.gpus.map(row)));
}

function latest(now) {
  if (!now.recent.length) {
    const begin = [h("a", { href: "#playground" }, "playground"), " is a place to begin."];
    return panel("Latest requests", empty("Nobody has asked anything yet. The ", ...begin));
  }
  const rows = now.recent.slice(0, SHOWN_REQUESTS).map((request) => requestRow(request, false));
  return panel("Latest requests",
    h("ul", { class: "requests brief" }, rows),
    h("p", { class: "note" }, h("a", { href: "#requests" }, "All recent requests")));
}
