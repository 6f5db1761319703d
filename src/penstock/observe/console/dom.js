// Elements from data. Text only ever enters as text nodes and attribute values, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "path", "line", "rect", "circle", "title"]);

/** An element. `vars` are CSS properties; attributes that are null or false are left out. */
export function h(tag, attributes, ...children) {
  const element = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "vars") {
      for (const [property, set] of Object.entries(value)) element.style.setProperty(property, set);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...present(children));
  return element;
}

const present = (children) =>
  children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);

export const by = (id) => document.getElementById(id);

/** Make the element's content equal to these nodes, keeping what is equal: focus and selection survive. */
export function render(element, ...children) {
  const fresh = element.cloneNode(false);
  fresh.append(...present(children));
  sync(element, fresh);
}

function sync(parent, fresh) {
  const wanted = new Set([...fresh.children].map(keyOf).filter(Boolean));
  const keyed = new Map();
  for (const child of [...parent.children]) {
    const key = keyOf(child);
    if (key && !wanted.has(key)) child.remove();
    else if (key) keyed.set(key, child);
  }
  let at = parent.firstChild;
  for (const node of [...fresh.childNodes]) {
    const key = keyOf(node);
    const match = key ? keyed.get(key) : at && !keyOf(at) ? at : null;
    if (match && match.nodeType === node.nodeType && match.nodeName === node.nodeName) {
      if (match === at) at = at.nextSibling;
      else parent.insertBefore(match, at);
      if (!node.make) morph(match, node);
      else if (match.version !== node.version) morph(match, made(node));
    } else {
      parent.insertBefore(made(node), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

const keyOf = (node) => node.dataset?.key;

/** An element that is made only if there is none yet of this key and version: for long lists of what stays. */
export function lasts(tag, key, version, make) {
  return Object.assign(h(tag, { "data-key": key }), { version, make });
}

/** It, and all in it that was to be made later. */
function made(node) {
  if (node.make) {
    const { version } = node;
    return Object.assign(h(node.localName, { "data-key": node.dataset.key }, node.make()), { version });
  }
  for (const later of node.querySelectorAll?.("[data-key]") ?? []) if (later.make) later.replaceWith(made(later));
  return node;
}

function morph(old, fresh) {
  old.version = fresh.version;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  sync(old, fresh);
}

/** Columns by name; those that begin with > are of numbers. */
export const columns = (...names) =>
  names.map((name) => (name[0] === ">" ? { name: name.slice(1), kind: "number" } : { name, kind: null }));

/** A table that becomes a list of cards on a narrow screen, and stays a table for who listens to it. */
export function table(label, columns, rows, kind = null) {
  const head = columns.map((column) =>
    h("th", { scope: "col", role: "columnheader", class: column.kind }, column.name));
  const cell = (content, index) => {
    const shown = { "data-label": columns[index].name, class: columns[index].kind };
    if (index) return h("td", { role: "cell", ...shown }, content);
    return h("th", { role: "rowheader", scope: "row", ...shown }, content);
  };
  const body = rows.map((row) => h("tr", { role: "row", "data-key": row.key }, row.cells.map(cell)));
  return h("table", { role: "table", "aria-label": label, class: kind },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
    h("tbody", { role: "rowgroup" }, body),
  );
}

export const empty = (...sentence) => h("p", { class: "empty" }, ...sentence);

/** A state as a word with a mark: the colour says nothing that the word does not. */
export const badge = (word, tone) => h("span", { class: `badge ${tone}` }, word);

export function panel(title, ...children) {
  return h("section", { class: "panel", "aria-label": title }, h("h2", {}, title), ...children);
}

/** One large figure; what follows its first space is its unit. */
export function tile(name, figure, details, chart = null) {
  const [value, unit] = figure.split(/ (.*)/);
  return h("section", { class: "panel tile", "aria-label": name },
    h("h2", {}, name),
    h("p", { class: "figure" }, value, unit && h("span", { class: "unit" }, ` ${unit}`)),
    h("p", { class: "soft" }, details), chart);
}

let saying;

/** A sentence that goes away by itself; it is read out too. */
export function say(sentence) {
  const place = by("said");
  place.textContent = sentence;
  clearTimeout(saying);
  saying = setTimeout(() => (place.textContent = ""), 6000);
}
