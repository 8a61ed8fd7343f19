/** The numbers above all charts: how much hits, and what that saved. */
import { spark } from "../charts/spark.js";
import { el, fill } from "../dom.js";
import { bytes, count, duration, money, percent } from "../format.js";
import { Panel } from "../panel.js";
import { broad, query } from "../state.js";
import { share } from "./ratio.js";

const sum = (/** @type {number[]} */ values) => values.reduce((a, b) => a + (b ?? 0), 0);

export class SavedPanel extends Panel {
  constructor() {
    super({ id: "saved", title: "In short", className: "strip" });
    /** @type {Record<string, {value: HTMLElement, note: HTMLElement, chart: HTMLElement}>} */
    this.cards = {};
    for (const [id, title] of [["hit", "Hit ratio"], ["lookups", "Lookups"], ["seconds", "Compute time saved"], ["bytes", "Bytes not computed again"], ["cost", "Cost avoided"]]) {
      const value = el("b", { class: "value num" }, "–");
      const note = el("span", { class: "note" }, "\u00a0");
      const chart = el("div", { class: "sparkbox" });
      this.cards[id] = { value, note, chart };
      this.body.append(el("div", { class: `card ${id}` }, el("h3", {}, title), value, note, chart));
    }
  }

  /** @param {import("../state.js").Window} range @returns {[string, URLSearchParams]} */
  question(range) {
    return ["saved", query(range, { points: range.points }, broad())];
  }

  /** @param {any} data */
  draw(data) {
    const perHour = data.per_hour > 0 ? `at ${money(data.per_hour, data.currency)} an hour` : "no price is set: --gpu-hour";
    this.set("seconds", duration(data.total_seconds), "of models that did not run", data.seconds);
    this.set("bytes", bytes(data.total_bytes), "served from the cache", data.bytes);
    this.set("cost", data.per_hour > 0 ? money(data.cost_avoided, data.currency) : "–", perHour, data.per_hour > 0 ? data.seconds : []);
  }

  /** What the ratio panel knows already. @param {{hits: number[], misses: number[]}} all */
  showRatio({ hits, misses }) {
    const both = hits.map((h, i) => h + misses[i]);
    this.set("hit", percent(share(sum(hits), sum(misses))), `${count(sum(hits))} hits, ${count(sum(misses))} misses`, hits.map((h, i) => share(h, misses[i])), 1);
    this.set("lookups", count(sum(both)), "estimated from the sampled", both);
  }

  /** @param {string} id @param {string} text @param {string} note @param {(number | null)[]} values @param {number} [most] */
  set(id, text, note, values, most) {
    const card = this.cards[id];
    card.value.textContent = text;
    card.note.textContent = note;
    fill(card.chart, values.length ? spark(values, most) : null);
  }
}
