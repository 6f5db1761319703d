// Small drawings, each with its meaning in words.

import { h } from "./dom.js";
import { milliseconds } from "./format.js";

const WIDTH = 300;
const HEIGHT = 60;
export const CHART_SECONDS = 300;

/** Lines over the last minutes. `series`: [{tone, values}] beside `points`; `limit`: a bound to be drawn. */
export function sparkline(label, points, series, now, limit = null) {
  const known = series.flatMap((line) => line.values).filter((value) => value !== null);
  const top = Math.max(1e-9, ...known, limit !== null && known.length ? Math.min(limit, 2 * Math.max(...known)) : 0) * 1.08;
  const x = (at) => WIDTH - ((now - at) / CHART_SECONDS) * WIDTH;
  const y = (value) => HEIGHT - 2 - (value / top) * (HEIGHT - 6);
  const drawn = series.flatMap((line) => {
    const runs = unbroken(points, line.values, now);
    const path = runs.map((run) => "M" + run.map(([at, value]) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("L")).join("");
    const area = runs
      .map((run) => `M${x(run[0][0]).toFixed(1)} ${HEIGHT}` + run.map(([at, value]) => `L${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("") + `L${x(run.at(-1)[0]).toFixed(1)} ${HEIGHT}Z`)
      .join("");
    return [line.fill && path && h("path", { class: `area ${line.tone}`, d: area }), path && h("path", { class: `line ${line.tone}`, d: path })];
  });
  const bound = limit !== null && limit <= top && h("line", { class: "limit", x1: 0, x2: WIDTH, y1: y(limit), y2: y(limit) });
  return h("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("line", { class: "floor", x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 }), bound, drawn.filter(Boolean));
}

/** Stretches of seconds in which the value is known. A lone one is drawn as a short dash. */
function unbroken(points, values, now) {
  const runs = [];
  let run = [];
  points.forEach((point, index) => {
    const value = values[index];
    if (point.at < now - CHART_SECONDS || point.at > now + 2) return;
    if (value === null) {
      if (run.length) runs.push(run);
      run = [];
    } else run.push([point.at, value]);
  });
  if (run.length) runs.push(run);
  return runs.map((each) => (each.length > 1 ? each : [each[0], [each[0][0] + 1, each[0][1]]]));
}

/** A share of 1 as a bar, with the figure beside it. `tone` may depend on how full it is. */
export function meter(value, text, tone = "calm") {
  if (value === null || value === undefined) return h("span", { class: "soft" }, "–");
  const part = Math.max(0, Math.min(1, value));
  return h("span", { class: "meter" },
    h("span", { class: `track ${tone}`, "aria-hidden": "true" }, h("span", { vars: { width: `${(part * 100).toFixed(1)}%` } })),
    h("span", {}, text));
}

export const fullness = (value) => (value >= 0.95 ? "bad" : value >= 0.85 ? "warn" : "calm");

/** Parts of a whole, side by side: [{name, value, text}]. */
export function mix(label, parts) {
  const whole = parts.reduce((sum, part) => sum + part.value, 0);
  const shown = parts.filter((part) => part.value > 0);
  return h("div", { class: "mix" },
    h("div", { class: "mix-bar", role: "img", "aria-label": `${label}: ${shown.map((part) => `${part.name} ${part.text}`).join(", ")}` },
      shown.map((part) => h("span", { class: `s${part.series}`, vars: { "flex-grow": String(part.value / whole) } }))),
    h("ul", { class: "legend", "aria-hidden": "true" },
      parts.map((part) => h("li", {}, h("span", { class: `swatch s${part.series}` }), `${part.name} `, h("b", {}, part.text)))));
}

/** Bars to compare: [{name, value, text}], the longest fills the row. */
export function bars(rows) {
  const most = Math.max(1, ...rows.map((row) => row.value));
  return h("ul", { class: "bars" },
    rows.map((row) =>
      h("li", { "data-key": row.name },
        h("span", { class: "bar-name" }, row.name),
        h("span", { class: `track ${row.tone ?? "calm"}`, "aria-hidden": "true" }, h("span", { vars: { width: `${((row.value / most) * 100).toFixed(1)}%` } })),
        h("span", { class: "bar-value" }, row.text))));
}

export const PHASES = ["admission", "cache", "route", "queue", "attempt", "prefill", "decode"];

/** A phase in words. */
export const phaseText = (phase) =>
  `${phase.name}${phase.detail ? ` (${phase.detail})` : ""} ${milliseconds(phase.ms)}${phase.failed ? ", failed" : ""}`;

/** A request's time as one bar: attempts below, what lies in them above. */
export function timeline(request) {
  const whole = Math.max(request.ms, ...request.phases.map((phase) => phase.start + phase.ms), 0.001);
  const percent = (value) => `${Math.max(0, Math.min(100, (value / whole) * 100)).toFixed(2)}%`;
  const words = request.phases.map(phaseText).join(", ") || "no phases were recorded";
  return h("span", { class: "timeline", role: "img", "aria-label": `Timeline: ${words}` },
    request.phases.map((phase) =>
      h("span", {
        class: `phase ${PHASES.includes(phase.name) ? phase.name : "other"}${phase.failed ? " failed" : ""}`,
        vars: { left: percent(phase.start), width: percent(phase.ms) },
        title: phaseText(phase),
      })));
}

export const phaseLegend = () =>
  h("ul", { class: "legend", "aria-label": "Colours of the timelines" },
    PHASES.map((name) => h("li", {}, h("span", { class: `swatch phase ${name}` }), name)));
