// Reports that were kept: plans and measurements, each a page of its own, shown in a frame that may run nothing.

import { request } from "./api.js";
import { by, empty, h, say } from "./dom.js";
import { day } from "./format.js";

export function reports(now) {
  if (!now.reports.length) {
    const how = [h("code", {}, "penstock bench serve --html console"), " measures a server and leaves one."];
    return [empty("No report is kept here yet. ", ...how)];
  }
  const row = (report) => {
    const title = report.title || report.name;
    return h("li", { "data-key": report.name },
      h("button", { type: "button", class: "link", "data-report": report.name, "data-title": title }, title),
      h("span", { class: "soft" }, report.name), h("span", { class: "soft" }, day(report.at)));
  };
  return [h("ul", { class: "panel report-list" }, now.reports.map(row))];
}

export function reportButtons() {
  by("body-reports").addEventListener("click", async (event) => {
    const button = event.target.closest("[data-report]");
    if (!button) return;
    try {
      const response = await request(`console/reports/${encodeURIComponent(button.dataset.report)}`);
      by("report-frame").srcdoc = await response.text();
      by("report-title").textContent = button.dataset.title;
      by("report").hidden = false;
      by("report-close").focus();
      by("report").scrollIntoView({ block: "start" });
    } catch (error) {
      say(`The report cannot be shown: ${error.message}`);
    }
  });
  by("report-close").addEventListener("click", () => {
    by("report").hidden = true;
    by("report-frame").srcdoc = "";
    by("title-reports").focus();
  });
}
