// Small drawings, each with its meaning in words.

import { h } from "./dom.js";
import { milliseconds } from "./format.js";

const WIDTH = 300;
const HEIGHT = 60;
const BIN_SECONDS = 5; // a second alone is mostly noise
const LONGEST_SECONDS = 300;
const SHORTEST_SECONDS = 60;

const sum = (values) => values.reduce((a, b) => a + b, 0);
export const mean = (values) => (values.length ? sum(values) / values.length : null);
export const most = (values) => (values.length ? Math.max(...values) : null);

/** How many seconds of the past a chart has: those that are known, within bounds. */
export function chartSpan(history, now) {
  const known = history.length ? now - history[0].at : 0;
  return Math.min(LONGEST_SECONDS, Math.max(SHORTEST_SECONDS, Math.ceil(known)));
}

/** A field of the history, a few seconds at a time: [at, value or null]. */
export function binned(history, field, of) {
  const bins = new Map();
  for (const point of history) {
    const bin = Math.floor(point.at / BIN_SECONDS);
    if (!bins.has(bin)) bins.set(bin, []);
    if (point[field] !== null) bins.get(bin).push(point[field]);
  }
  return [...bins].map(([bin, values]) => [(bin + 1) * BIN_SECONDS, of(values)]);
}

/** Lines over the last `span` seconds. `series`: [{tone, fill, points}]; `limit`: a bound to be drawn. */
export function sparkline(label, series, now, span, limit = null) {
  const highest = most(series.flatMap((line) => line.points.map(([, value]) => value ?? 0))) ?? 0;
  const bounded = limit !== null && limit < 2 * highest;
  const top = Math.max(highest, bounded ? limit : 0, 1e-9) * 1.08;
  const x = (at) => Math.min(WIDTH, WIDTH - ((now - at) / span) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - 2 - (value / top) * (HEIGHT - 6)).toFixed(1);
  const drawn = series.map((line) =>
    unbroken(line.points, now - span).map((run) => {
      const path = run.map(([at, value]) => `${x(at)} ${y(value)}`).join("L");
      const area = `M${x(run[0][0])} ${HEIGHT}L${path}L${x(run.at(-1)[0])} ${HEIGHT}Z`;
      return [
        line.fill && h("path", { class: `area ${line.tone}`, d: area }),
        h("path", { class: `line ${line.tone}`, d: `M${path}` }),
      ];
    }),
  );
  const floor = { class: "floor", x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 };
  const bound = bounded && h("line", { class: "limit", x1: 0, x2: WIDTH, y1: y(limit), y2: y(limit) });
  const box = { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" };
  return h("svg", { ...box, role: "img", "aria-label": label }, h("line", floor), bound, drawn);
}

/** Stretches in which the value is known. A lone one becomes a short dash. */
function unbroken(points, from) {
  const runs = [[]];
  for (const [at, value] of points) {
    if (value === null) runs.push([]);
    else if (at >= from) runs.at(-1).push([at, value]);
  }
  return runs.filter((run) => run.length)
    .map((run) => (run.length > 1 ? run : [[run[0][0] - BIN_SECONDS, run[0][1]], run[0]]));
}

const track = (part, tone) =>
  h("span", { class: `track ${tone}`, "aria-hidden": "true" },
    h("span", { vars: { width: `${(Math.max(0, Math.min(1, part)) * 100).toFixed(1)}%` } }));

/** A share of 1 as a bar, with the figure beside it. */
export function meter(value, text, tone = "calm") {
  if (value === null || value === undefined) return h("span", { class: "soft" }, "–");
  return h("span", { class: "meter" }, track(value, tone), h("span", {}, text));
}

/** The tone of something that should not get full. */
export const fullness = (value) => (value >= 0.95 ? "bad" : value >= 0.85 ? "warn" : "calm");

/** Parts of a whole, side by side: [{name, value, text}]. */
export function mix(label, parts) {
  const whole = sum(parts.map((part) => part.value));
  const series = (index) => `s${index % 6}`;
  const words = parts.map((part) => `${part.name} ${part.text}`).join(", ");
  return h("div", { class: "mix" },
    h("div", { class: "mix-bar", role: "img", "aria-label": `${label}: ${words}` },
      parts.map(({ value }, index) =>
        value > 0 && h("span", { class: series(index), vars: { "flex-grow": String(value / whole) } }))),
    h("ul", { class: "legend", "aria-hidden": "true" },
      parts.map((part, index) =>
        h("li", {}, h("span", { class: `swatch ${series(index)}` }), `${part.name} `, h("b", {}, part.text)))));
}

/** Bars to compare: [{name, value, text}]; the longest fills its row. */
export function bars(rows, tone) {
  const longest = Math.max(1, ...rows.map((row) => row.value));
  return h("ul", { class: "bars" },
    rows.map((row) =>
      h("li", { "data-key": row.name },
        h("span", { class: "bar-name" }, row.name),
        track(row.value / longest, tone),
        h("span", { class: "bar-value" }, row.text))));
}

const PHASES = ["admission", "cache", "route", "queue", "attempt", "prefill", "decode"];

export const phaseClass = (phase) =>
  `phase ${PHASES.includes(phase.name) ? phase.name : "other"}${phase.failed ? " failed" : ""}`;

const phaseText = (phase) =>
  `${phase.name}${phase.detail && ` (${phase.detail})`} ${milliseconds(phase.ms)}${phase.failed ? ", failed" : ""}`;

/** A request's time as one bar: attempts below, what lies in them above. */
export function timeline(request) {
  const whole = Math.max(request.ms, ...request.phases.map((phase) => phase.start + phase.ms), 0.001);
  const percent = (ms) => `${Math.max(0, Math.min(100, (ms / whole) * 100)).toFixed(2)}%`;
  const words = request.phases.map(phaseText).join(", ") || "no phases were recorded";
  return h("span", { class: "timeline", role: "img", "aria-label": `Timeline: ${words}` },
    request.phases.map((phase) => {
      const vars = { left: percent(phase.start), width: percent(phase.ms) };
      return h("span", { class: phaseClass(phase), vars, title: phaseText(phase) });
    }));
}

export const phaseLegend = () =>
  h("ul", { class: "legend", "aria-label": "Colours of the timelines" },
    PHASES.map((name) => h("li", {}, h("span", { class: `swatch phase ${name}` }), name)));
