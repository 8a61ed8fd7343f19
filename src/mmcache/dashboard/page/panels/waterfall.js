/** One trace as a waterfall: who called whom, when, and how long it took. */
import { el, fill, reconcile, svg } from "../dom.js";
import { duration, named } from "../format.js";

/**
 * @typedef {{span: string, parent: string | null, name: string, kind: string, start: number, duration_ms: number,
 *   service: string, instance: string, status: string, attributes: Record<string, unknown>}} Span
 * @typedef {{span: Span, depth: number, children: number}} Row
 */
const MOST = 1000;

/** Parents before children, each in the order of time; a span whose parent is not here is a root, a circle is cut.
 * @param {Span[]} spans @param {Set<string>} folded @returns {Row[]} */
export function order(spans, folded) {
  const ids = new Set(spans.map((s) => s.span));
  /** @type {Map<string, Span[]>} */
  const below = new Map();
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    const parent = span.parent && span.parent !== span.span && ids.has(span.parent) ? span.parent : "";
    below.set(parent, [...(below.get(parent) ?? []), span]);
  }
  /** @type {Row[]} */
  const rows = [];
  const seen = new Set();
  const visit = (/** @type {Span} */ span, /** @type {number} */ depth, /** @type {boolean} */ shown) => {
    if (seen.has(span.span)) return;
    seen.add(span.span);
    const children = below.get(span.span) ?? [];
    if (shown) rows.push({ span, depth, children: children.length });
    for (const child of children) visit(child, depth + 1, shown && !folded.has(span.span));
  };
  for (const span of below.get("") ?? []) visit(span, 0, true);
  for (const span of spans) visit(span, 0, true);
  return rows;
}

/** @param {Span} span */
export function kindOf(span) {
  if (span.status === "error") return "error";
  if (span.name === "cache.lookup") return span.attributes["cache.hit"] === true ? "hit" : "miss";
  if (span.name === "cache.compute") return "compute";
  return span.name.startsWith("cache.") ? "cache" : span.kind === "server" || span.kind === "client" ? span.kind : "other";
}

export class Waterfall {
  /** @param {(span: string) => void} select */
  constructor(select) {
    this.select = select;
    /** @type {Set<string>} */
    this.folded = new Set();
    this.root = el("ul", { class: "waterfall", role: "tree", "aria-label": "Spans" });
    this.cut = el("p", { class: "none", hidden: true });
    this.root.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {Span[]} spans @param {string} chosen */
  show(spans, chosen) {
    this.spans = spans;
    this.chosen = chosen;
    const begin = Math.min(...spans.map((s) => s.start));
    const length = Math.max(1e-6, ...spans.map((s) => s.start - begin + s.duration_ms / 1000));
    const all = order(spans, this.folded);
    const rows = all.slice(0, MOST);
    this.cut.hidden = all.length <= MOST;
    this.cut.textContent = `The first ${MOST} of ${all.length} spans.`;
    const focused = rows.some((r) => r.span.span === chosen) ? chosen : rows[0]?.span.span;
    reconcile(this.root, rows, (r) => r.span.span, (r) => this.item(r.span.span), (item, { span, depth, children }) => {
      const [name, lane] = item.children;
      const bar = svg("svg", { class: `bar ${kindOf(span)}`, "aria-hidden": "true" }, svg("rect", { width: "100%", height: "100%", rx: 2 }));
      bar.style.marginLeft = `${(Math.max(0, span.start - begin) / length) * 100}%`;
      bar.style.width = `${Math.max(0.4, (span.duration_ms / 10 / length))}%`;
      const took = duration(span.duration_ms / 1000);
      const fold = el("button", { type: "button", class: "fold", tabindex: "-1", "aria-hidden": "true", "data-fold": "1" }, this.folded.has(span.span) ? "▸" : "▾");
      const reason = span.attributes["cache.miss.reason"];
      /** @type {HTMLElement} */ (name).style.paddingLeft = `${Math.min(depth, 12) * 14}px`;
      fill(name, children ? fold : el("i", { class: "leaf" }), el("span", { class: "title" }, named(span.name)), reason ? el("em", {}, named(reason)) : null, el("small", {}, named(span.instance || span.service)));
      fill(lane, bar, el("span", { class: "took num" }, took));
      item.setAttribute("aria-level", String(depth + 1));
      item.setAttribute("aria-selected", String(span.span === chosen));
      item.setAttribute("aria-label", `${span.name}${reason ? `, ${reason}` : ""}, ${took}, ${named(span.instance || span.service)}`);
      if (children) item.setAttribute("aria-expanded", String(!this.folded.has(span.span)));
      else item.removeAttribute("aria-expanded");
      item.setAttribute("tabindex", span.span === focused ? "0" : "-1");
    });
  }

  /** @param {string} id */
  item(id) {
    const item = el("li", { role: "treeitem" }, el("span", { class: "name" }), el("span", { class: "lane" }));
    item.addEventListener("click", (event) => {
      if (/** @type {HTMLElement} */ (event.target).dataset.fold) this.fold(id);
      else this.select(id);
    });
    return item;
  }

  /** @param {string} id */
  fold(id) {
    if (this.folded.has(id)) this.folded.delete(id);
    else this.folded.add(id);
    this.show(this.spans ?? [], this.chosen ?? "");
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const item = /** @type {HTMLElement | null} */ (/** @type {HTMLElement} */ (event.target).closest("li"));
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    const id = /** @type {any} */ (item).itemKey;
    const open = item.getAttribute("aria-expanded");
    const to = { ArrowDown: item.nextElementSibling, ArrowUp: item.previousElementSibling, Home: this.root.firstElementChild, End: this.root.lastElementChild }[event.key];
    if (event.key in { ArrowDown: 1, ArrowUp: 1, Home: 1, End: 1 }) this.focus(/** @type {HTMLElement | null} */ (to));
    else if (event.key === "Enter" || event.key === " ") this.select(id);
    else if ((event.key === "ArrowLeft" && open === "true") || (event.key === "ArrowRight" && open === "false")) this.fold(id);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {HTMLElement | null | undefined} item */
  focus(item) {
    if (!item) return;
    for (const one of this.root.children) one.setAttribute("tabindex", "-1");
    item.setAttribute("tabindex", "0");
    item.focus();
  }
}
