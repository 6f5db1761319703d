// Tiers: who answered `auto`, what it cost, and how good it was. And who pays: the tenants.

import { fullness, meter, mix } from "./charts.js";
import { empty, h, panel, table } from "./dom.js";
import { count, dollars, plural, share } from "./format.js";

const figure = (name, value, details) =>
  h("section", { class: "panel tile", "aria-label": name }, h("h2", {}, name), h("p", { class: "figure" }, value), h("p", { class: "soft" }, details));

export function routing(now) {
  const books = now.routing;
  if (!books || !books.tiers.length) {
    return [empty("No tiers are configured, so there is nothing to choose from. The section ", h("code", {}, "tiers"), " of penstock.yaml names them, cheapest first; clients then ask for the model ", h("code", {}, "auto"), ".")];
  }
  const checked = books.tiers.reduce((sum, tier) => sum + tier.checked, 0);
  const columns = [{ name: "Tier" }, { name: "Model" }, { name: "Answers", number: true }, { name: "Share" }, { name: "Cost", number: true }, { name: "As good as the expert" }, { name: "Escalated", number: true }];
  const cells = (tier) => [
    tier.name, tier.model, count(tier.answers), meter(tier.share, share(tier.share)), dollars(tier.dollars),
    tier.quality === null ? h("span", { class: "soft" }, "not checked yet") : meter(tier.quality, `${share(tier.quality)} of ${count(tier.checked)}`, "green"), count(tier.escalated),
  ];
  return [
    h("div", { class: "tiles" },
      figure("Saved", share(books.savings), "of what the expert alone would have cost, after routing's own cost"),
      figure("Spent", dollars(books.spent), `routing itself ${dollars(books.overhead)}`),
      figure("Always the expert", dollars(books.always_expert), "what the same answers would have cost there"),
      figure("Answers", count(books.answers), checked ? `${plural(checked, "was", "were")} compared with the expert's` : "none compared with the expert's yet")),
    panel("Who answered",
      books.answers
        ? mix("Share of answers", books.tiers.map((tier, index) => ({ name: tier.name, value: tier.answers, text: share(tier.share), series: index % 6 })))
        : empty("Nobody has asked ", h("code", {}, "auto"), " yet."),
      table("Tiers", columns, books.tiers.map((tier) => ({ key: tier.name, cells: cells(tier) })))),
  ];
}

export function tenants(now) {
  if (!now.tenants.length) return [empty("No tenant has used anything this month.")];
  const columns = [{ name: "Tenant" }, { name: "Requests", number: true }, { name: "Tokens", number: true }, { name: "Running", number: true }, { name: "Spend", number: true }, { name: "Of the budget" }];
  const rows = [...now.tenants].sort((a, b) => b.dollars - a.dollars || b.tokens - a.tokens);
  const budget = (tenant) => tenant.budget ? meter(tenant.dollars / tenant.budget, `${share(tenant.dollars / tenant.budget, 0)} of ${dollars(tenant.budget)}`, fullness(tenant.dollars / tenant.budget)) : h("span", { class: "soft" }, "no budget");
  return [
    h("section", { class: "panel", "aria-label": "Spend by tenant" },
      table("Tenants", columns, rows.map((tenant) => ({
        key: tenant.name,
        cells: [tenant.name, count(tenant.requests), count(tenant.tokens), count(tenant.running), dollars(tenant.dollars), budget(tenant)],
      })))),
  ];
}
