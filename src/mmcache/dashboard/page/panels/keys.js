/** The hottest keys over time: a heat map whose rows filter. */
import { el, fill, reconcile, svg } from "../dom.js";
import { count, moment, named, percent, short } from "../format.js";
import { Panel } from "../panel.js";
import { addFilter, current, dropFilter, query } from "../state.js";
import { share } from "./ratio.js";

const TOP = 16;
const LEVELS = 6;

/** @typedef {{key: string, modality: string, tenant: string, hits: number, misses: number, counts: number[]}} HotKey */

export class KeysPanel extends Panel {
  constructor() {
    super({ id: "keys", title: "Hottest keys", hint: "lookups over time; a click filters", className: "full" });
    this.rows = el("tbody");
    this.none = el("p", { class: "none", hidden: true }, "No key was looked up in this time.");
    this.body.append(
      el("div", { class: "scroll" }, el("table", { class: "heat" }, el("caption", { class: "sr" }, "Hottest keys"),
        el("thead", {}, el("tr", {}, ["key", "tenant", "", "lookups", "hits"].map((h, i) => el("th", { scope: "col", class: i > 2 ? "num" : "" }, h || el("span", { class: "sr" }, "over time"))))), this.rows)),
      this.none);
    this.rows.addEventListener("keydown", (event) => this.move(/** @type {KeyboardEvent} */ (event)));
  }

  /** @param {import("../state.js").Window} range @returns {[string, URLSearchParams]} */
  question(range) {
    return ["keys", query(range, { top: TOP, points: Math.min(60, range.points) })];
  }

  /** @param {{t: number[], keys: HotKey[]}} data */
  draw({ t, keys }) {
    this.none.hidden = keys.length > 0;
    const most = Math.max(1, ...keys.flatMap((k) => k.counts));
    const chosen = current().filters.key ?? [];
    const make = () => {
      const button = el("button", { type: "button", class: "key mono" });
      const row = el("tr", {}, el("th", { scope: "row" }, button), el("td", { class: "whose" }), el("td", { class: "strip" }), el("td", { class: "num" }), el("td", { class: "num" }));
      row.addEventListener("click", () => {
        const key = String(button.dataset.key);
        if (current().filters.key?.includes(key)) dropFilter("key", key);
        else addFilter("key", key);
      });
      row.addEventListener("pointermove", (event) => this.readAt(/** @type {PointerEvent} */ (event), row));
      row.addEventListener("pointerleave", () => (this.hint.textContent = this.about.hint ?? ""));
      return row;
    };
    reconcile(this.rows, keys, (k) => `${k.key}\n${k.modality}\n${k.tenant}`, make, (row, key) => {
      const [head, whose, strip, all, hits] = row.children;
      const button = /** @type {HTMLElement} */ (head.firstElementChild);
      button.dataset.key = key.key;
      button.textContent = short(key.key, 16);
      button.setAttribute("aria-pressed", String(chosen.includes(key.key)));
      button.title = `${key.key}: show only this key`;
      fill(whose, el("span", { class: "modality" }, named(key.modality)), el("span", {}, named(key.tenant)));
      fill(strip, this.stripe(key.counts, most, t));
      all.textContent = count(key.hits + key.misses);
      hits.textContent = percent(share(key.hits, key.misses));
      Object.assign(row, { heat: { t, key } });
    });
  }

  /** Cells as darker as there were more lookups, by square root, so that a hot bucket does not hide the others.
   * @param {number[]} counts @param {number} most @param {number[]} t */
  stripe(counts, most, t) {
    const cells = counts.map((n, i) => n > 0 && svg("rect", { class: `q${Math.max(1, Math.ceil(Math.sqrt(n / most) * LEVELS))}`, x: i, y: 0, width: 0.92, height: 1 }));
    const peak = counts.indexOf(Math.max(...counts));
    return svg("svg", { viewBox: `0 0 ${Math.max(1, counts.length)} 1`, preserveAspectRatio: "none", role: "img", "aria-label": peak < 0 ? "no lookups" : `most at ${moment(t[peak])}: ${count(counts[peak])}` }, ...cells);
  }

  /** @param {PointerEvent} event @param {HTMLElement} row */
  readAt(event, row) {
    const { t, key } = /** @type {any} */ (row).heat;
    const box = row.children[2].getBoundingClientRect();
    const i = Math.floor(((event.clientX - box.left) / box.width) * t.length);
    this.hint.textContent = i >= 0 && i < t.length ? `${moment(t[i])}: ${count(key.counts[i])} lookups of ${short(key.key, 16)}` : this.about.hint ?? "";
  }

  /** @param {KeyboardEvent} event */
  move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = /** @type {HTMLElement} */ (event.target).closest("tr");
    if (!step || !row) return;
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    /** @type {HTMLElement | null | undefined} */ (next?.querySelector("button"))?.focus();
    event.preventDefault();
  }
}
