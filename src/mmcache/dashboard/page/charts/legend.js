/** The series of a chart: their colours, what they read at the cursor, and a switch for each. */
import { assign, el, reconcile } from "../dom.js";

/**
 * @typedef {{name: string, label: string, slot: number, values: (number | null)[], read: (i: number | null) => string}} Series
 */
export class Legend {
  /** @param {{changed: () => void, look: (name: string | null) => void}} owner */
  constructor(owner) {
    this.owner = owner;
    /** @type {Set<string>} */
    this.hidden = new Set();
    /** @type {Series[]} */
    this.series = [];
    this.root = el("ul", { class: "legend" });
  }

  /** @param {Series[]} series */
  show(series) {
    this.series = series;
    const make = (/** @type {Series} */ one) => {
      const button = el("button", { type: "button" }, el("i", { class: "swatch" }), el("span", { class: "name" }), el("b", { class: "num" }));
      const item = el("li", {}, button);
      button.addEventListener("click", (event) => this.toggle(one.name, event.shiftKey));
      item.addEventListener("pointerenter", () => this.owner.look(one.name));
      item.addEventListener("pointerleave", () => this.owner.look(null));
      return item;
    };
    reconcile(this.root, series, (one) => one.name, make, (item, one) => {
      const button = /** @type {HTMLElement} */ (item.firstElementChild);
      assign(button, { "aria-pressed": String(!this.hidden.has(one.name)), class: `s${one.slot}`, title: `${one.label}: click shows or hides it, Shift+click only it` });
      /** @type {HTMLElement} */ (button.children[1]).textContent = one.label;
    });
  }

  /** @param {string} name @param {boolean} only */
  toggle(name, only) {
    const others = this.series.map((s) => s.name).filter((n) => n !== name);
    const alone = !this.hidden.has(name) && others.every((n) => this.hidden.has(n));
    if (only || alone) this.hidden = new Set(alone ? [] : others);
    else if (this.hidden.has(name)) this.hidden.delete(name);
    else this.hidden.add(name);
    this.show(this.series);
    this.owner.changed();
  }

  /** What each reads at bucket `i`; null = over all. @param {number | null} i */
  read(i) {
    this.series.forEach((one, n) => {
      const box = this.root.children[n]?.querySelector("b");
      if (box) box.textContent = one.read(i);
    });
  }
}
