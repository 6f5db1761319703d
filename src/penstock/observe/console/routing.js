// Tiers: who answered `auto`, what it cost, and how good it was. And who pays: the tenants.

import { fullness, meter, mix } from "./charts.js";
import { columns, empty, h, panel, table, tile } from "./dom.js";
import { count, dollars, plural, share } from "./format.js";

const soft = (text) => h("span", { class: "soft" }, text);

export function routing(now) {
  const books = now.routing;
  if (!books || !books.tiers.length) {
    return [empty("No tiers are configured, so there is nothing to choose from. The section ",
      h("code", {}, "tiers"), " of penstock.yaml names them, cheapest first; clients then ask for the model ",
      h("code", {}, "auto"), ".")];
  }
  const checked = books.tiers.reduce((sum, tier) => sum + tier.checked, 0);
  const compared = checked ? plural(checked, "was", "were") : "none was";
  const parts = books.tiers.map((tier) => ({ name: tier.name, value: tier.answers, text: share(tier.share) }));
  const names = columns("Tier", "Model", ">Answers", "Share", ">Cost", "As good as the expert", ">Escalated");
  const row = (tier) => ({
    key: tier.name,
    cells: [
      tier.name, tier.model, count(tier.answers), meter(tier.share, share(tier.share)), dollars(tier.dollars),
      tier.quality === null
        ? soft("not checked yet")
        : meter(tier.quality, `${share(tier.quality)} of ${count(tier.checked)}`, "green"),
      count(tier.escalated),
    ],
  });
  return [
    h("div", { class: "tiles" },
      tile("Saved", share(books.savings), "of what the expert alone would have cost, after routing's own cost"),
      tile("Spent", dollars(books.spent), `routing itself ${dollars(books.overhead)}`),
      tile("Always the expert", dollars(books.always_expert), "what the same answers would have cost there"),
      tile("Answers", count(books.answers), `${compared} compared with the expert's`)),
    panel("Who answered",
      books.answers ? mix("Share of answers", parts) : empty("Nobody has asked ", h("code", {}, "auto"), " yet."),
      table("Tiers", names, books.tiers.map(row))),
  ];
}

export function tenants(now) {
  if (!now.tenants.length) return [empty("No tenant has used anything this month.")];
  const budget = (tenant) => {
    if (!tenant.budget) return soft("no budget");
    const used = tenant.dollars / tenant.budget;
    return meter(used, `${share(used, 0)} of ${dollars(tenant.budget)}`, fullness(used));
  };
  const row = (tenant) => ({
    key: tenant.name,
    cells: [
      tenant.name, count(tenant.requests), count(tenant.tokens), count(tenant.running), dollars(tenant.dollars),
      budget(tenant),
    ],
  });
  const names = columns("Tenant", ">Requests", ">Tokens", ">Running", ">Spend", "Of the budget");
  const sorted = [...now.tenants].sort((a, b) => b.dollars - a.dollars || b.tokens - a.tokens);
  const rows = table("Tenants", names, sorted.map(row));
  return [h("section", { class: "panel", "aria-label": "Spend by tenant" }, rows)];
}
