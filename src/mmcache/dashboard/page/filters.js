/** Filters as chips, and one field that finds any value of any axis. */
import { el, fill, icon, reconcile } from "./dom.js";
import { named, short } from "./format.js";
import { addFilter, AXES, axisWord, change, current, dropFilter } from "./state.js";

const MOST = 40;

export class Filters {
  constructor() {
    /** @type {Record<string, string[]>} */
    this.axes = {};
    this.at = -1;
    this.field = /** @type {HTMLInputElement} */ (el("input", { type: "text", role: "combobox", "aria-label": "Add a filter", "aria-expanded": "false", "aria-controls": "filter-list", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", placeholder: "Filter by tenant, route, key…" }));
    this.list = el("ul", { class: "options", id: "filter-list", role: "listbox", "aria-label": "Filters", hidden: true });
    this.chips = el("ul", { class: "chips", "aria-label": "Active filters" });
    this.clear = el("button", { type: "button", class: "small quiet", hidden: true }, "Clear all");
    this.clear.addEventListener("click", () => {
      change({ filters: {} });
      this.field.focus();
    });
    this.find = el("div", { class: "find", role: "search" }, icon("search"), this.field, this.list);
    this.root = el("div", { class: "filters", hidden: true }, this.chips, this.clear);
    this.field.addEventListener("focus", () => this.open());
    this.field.addEventListener("input", () => this.open());
    this.field.addEventListener("blur", () => this.close());
    this.field.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {Record<string, string[]>} axes */
  offer(axes) {
    if (JSON.stringify(axes) === JSON.stringify(this.axes)) return;
    this.axes = axes;
    if (!this.list.hidden) this.open();
  }

  /** What matches each word typed, with or without its axis in front. */
  matches() {
    const typed = this.field.value.trim();
    const words = typed.toLowerCase().split(/[\s:]+/).filter(Boolean);
    const chosen = current().filters;
    /** @type {[string, string][]} */
    const found = [];
    for (const axis of AXES) {
      for (const value of this.axes[axis] ?? []) {
        const text = `${axisWord(axis)} ${named(value)}`.toLowerCase();
        if (!chosen[axis]?.includes(value) && words.every((w) => text.includes(w))) found.push([axis, value]);
      }
    }
    const key = typed.replace(/^key[\s:]+/i, "");
    if (/^[0-9a-f]{4,32}$/i.test(key)) found.unshift(["key", key.toLowerCase()]);
    return found.slice(0, MOST);
  }

  open() {
    const found = this.matches();
    this.found = found;
    this.at = found.length && this.field.value ? 0 : -1;
    fill(this.list, found.length
      ? found.map(([axis, value], i) => {
        const option = el("li", { role: "option", id: `filter-${i}`, "aria-selected": "false" }, el("i", {}, axisWord(axis)), el("span", {}, short(named(value), 80)));
        option.addEventListener("pointerdown", (event) => {
          event.preventDefault();
          this.take(i);
        });
        return option;
      })
      : el("li", { class: "none", role: "option", "aria-disabled": "true" }, this.field.value ? "Nothing seen is like that." : "Nothing to filter by yet."));
    this.list.hidden = false;
    this.field.setAttribute("aria-expanded", "true");
    this.mark();
  }

  close() {
    this.list.hidden = true;
    this.field.setAttribute("aria-expanded", "false");
    this.field.removeAttribute("aria-activedescendant");
  }

  mark() {
    [...this.list.children].forEach((option, i) => {
      option.setAttribute("aria-selected", String(i === this.at));
      if (i === this.at) option.scrollIntoView({ block: "nearest" });
    });
    if (this.at >= 0) this.field.setAttribute("aria-activedescendant", `filter-${this.at}`);
    else this.field.removeAttribute("aria-activedescendant");
  }

  /** @param {number} i */
  take(i) {
    const [axis, value] = this.found?.[i] ?? [];
    if (axis === undefined || value === undefined) return;
    this.field.value = "";
    addFilter(axis, value);
    this.close();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const size = this.found?.length ?? 0;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (this.list.hidden) this.open();
      else if (size) this.at = (this.at + (event.key === "ArrowDown" ? 1 : this.at < 0 ? 0 : -1) + size) % size;
      this.mark();
    } else if (event.key === "Enter") this.take(this.at);
    else if (event.key === "Escape") {
      if (this.list.hidden) this.field.blur();
      this.field.value = "";
      this.close();
    } else if (event.key === "Backspace" && !this.field.value) {
      const last = Object.entries(current().filters).at(-1);
      if (last) dropFilter(last[0], last[1][last[1].length - 1]);
      return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  showState() {
    const chosen = Object.entries(current().filters).flatMap(([axis, values]) => values.map((value) => ({ axis, value })));
    this.root.hidden = !chosen.length;
    this.clear.hidden = chosen.length < 2;
    reconcile(this.chips, chosen, ({ axis, value }) => `${axis}\n${value}`, ({ axis, value }) => {
      const button = el("button", { type: "button", class: "chip", "aria-label": `${axisWord(axis)} ${named(value)}: remove`, title: named(value) }, el("i", {}, axisWord(axis)), el("span", {}, short(named(value), 40)), icon("close"));
      button.addEventListener("click", () => {
        const next = button.closest("li")?.nextElementSibling?.querySelector("button");
        dropFilter(axis, value);
        (next ?? this.field).focus();
        if (!next) this.close();
      });
      return el("li", {}, button);
    }, () => {});
  }
}
