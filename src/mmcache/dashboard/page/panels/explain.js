/** Why one lookup missed: which part of its key moved, who else it happened to, and the last hit before it. */
import { get } from "../api.js";
import { el, fill } from "../dom.js";
import { count, moment, named, zoned } from "../format.js";
import { address, change, current } from "../state.js";

export class Explain {
  constructor() {
    this.root = el("section", { class: "explain", "aria-labelledby": "explain-title", "aria-live": "polite" });
    this.shown = "";
    /** @type {AbortController | null} */
    this.asking = null;
  }

  /** @param {string} trace @param {string} span */
  async show(trace, span) {
    const id = `${trace}/${span}`;
    if (id === this.shown) return;
    this.shown = id;
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    this.frame(el("div", { class: "skeleton lines", "aria-hidden": "true" }, el("i"), el("i"), el("i")));
    try {
      const data = await get(`explain/${encodeURIComponent(trace)}/${encodeURIComponent(span)}`, null, asking.signal);
      if (this.asking === asking) this.draw(data);
    } catch (error) {
      if (this.asking !== asking) return;
      const retry = el("button", { type: "button", class: "small" }, "Try again");
      retry.addEventListener("click", () => {
        this.shown = "";
        this.show(trace, span);
      });
      this.frame(el("div", { class: "notice" }, el("p", { role: "alert" }, el("b", {}, "No explanation. "), /** @type {Error} */ (error).message), retry));
    }
  }

  /** @param {...import("../dom.js").Child} children */
  frame(...children) {
    fill(this.root, el("h3", { id: "explain-title" }, "Why?"), ...children);
  }

  /** @param {any} data */
  draw({ verdict, text = [], moved = [], before, spread }) {
    const [first, ...rest] = text.map(zoned);
    this.frame(
      el("p", { class: "verdict" }, el("span", { class: `pill ${/^hit/.test(String(verdict)) ? "good" : "bad"}` }, named(verdict)), first ? el("span", {}, ` ${first}`) : null),
      moved.length ? this.moved(moved) : null,
      rest.length ? el("ul", { class: "lines" }, rest.map((/** @type {string} */ line) => el("li", {}, line))) : null,
      before ? this.before(before) : null,
      spread?.instances?.length ? this.spread(spread) : null);
  }

  /** @param {{component: string, was: string, now: string}[]} moved */
  moved(moved) {
    return el("table", { class: "movedtable" }, el("caption", {}, "What moved in the key"),
      el("thead", { class: "sr" }, el("tr", {}, ["part", "was", "now"].map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", {}, moved.map((m) => el("tr", {}, el("th", { scope: "row" }, m.component), el("td", {}, el("del", {}, named(m.was))), el("td", { class: "arrow", "aria-hidden": "true" }, "→"), el("td", {}, el("ins", {}, named(m.now)))))));
  }

  /** @param {{trace: string, span: string, when: number, instance: string}} before */
  before(before) {
    const link = el("a", { href: address({ ...current(), trace: before.trace, span: before.span }) }, `The last hit: ${moment(before.when)}, in ${named(before.instance)}`);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      change({ trace: before.trace, span: before.span });
    });
    return el("p", { class: "before" }, link);
  }

  /** @param {{misses: number, since: number | null, instances: {instance: string, misses: number, hits: number}[]}} spread */
  spread({ misses, since, instances }) {
    const most = Math.max(1, ...instances.map((i) => i.misses + i.hits));
    return el("div", { class: "spread" },
      el("h4", {}, `${count(misses)} like it${since ? ` since ${moment(since)}` : ""}`),
      el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "instance"), el("th", { scope: "col" }, el("span", { class: "sr" }, "share")), el("th", { scope: "col", class: "num" }, "misses"), el("th", { scope: "col", class: "num" }, "hits"))),
        el("tbody", {}, instances.map((one) => {
          const bar = el("span", { class: "twobar", "aria-hidden": "true" }, el("i", { class: "misses" }), el("i", { class: "hits" }));
          /** @type {HTMLElement} */ (bar.children[0]).style.width = `${(one.misses / most) * 100}%`;
          /** @type {HTMLElement} */ (bar.children[1]).style.width = `${(one.hits / most) * 100}%`;
          return el("tr", {}, el("th", { scope: "row" }, named(one.instance)), el("td", { class: "barcell" }, bar), el("td", { class: "num" }, count(one.misses)), el("td", { class: "num" }, count(one.hits)));
        }))));
  }
}
