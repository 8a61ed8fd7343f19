/** How full the tiers are, and what they throw out. */
import { below } from "../below.js";
import { spark } from "../charts/spark.js";
import { el, fill, reconcile } from "../dom.js";
import { bytes, count, named, percent } from "../format.js";
import { Panel } from "../panel.js";
import { current, query } from "../state.js";

/** @typedef {{service: string, instance: string, tier: string, used: (number | null)[], limit: number | null, blocks: (number | null)[], evictions: (number | null)[]}} Tier */

const last = (/** @type {(number | null)[]} */ values) => [...values].reverse().find((v) => v !== null && v !== undefined) ?? null;
const sum = (/** @type {(number | null)[]} */ values) => values.reduce((/** @type {number} */ a, b) => a + (b ?? 0), 0);

export class TiersPanel extends Panel {
  constructor() {
    super({ id: "tiers", title: "Tiers", hint: "fill and evictions", className: "side" });
    this.list = el("ul", { class: "tiers" });
    this.none = el("p", { class: "none", hidden: true }, "No metrics of tiers in this time. They come by OTLP to /v1/metrics.");
    this.body.append(this.list, this.none);
    below(this, "li");
  }

  /** @param {import("../state.js").Window} range @returns {[string, URLSearchParams]} */
  question(range) {
    const { service, instance } = current().filters;
    const only = { ...(service && { service }), ...(instance && { instance }) };
    return ["tiers", query(range, { points: Math.min(60, range.points) }, only)];
  }

  /** @param {{tiers: Tier[]}} data */
  draw({ tiers }) {
    this.none.hidden = tiers.length > 0;
    reconcile(this.list, tiers, (t) => `${t.service}\n${t.instance}\n${t.tier}`, () => el("li"), (item, tier) => {
      const used = last(tier.used);
      const blocks = last(tier.blocks);
      const full = used !== null && tier.limit ? used / tier.limit : null;
      const bar = el("span", { class: "fillbar" }, el("i", { class: full !== null && full > 0.95 ? "tight" : "" }));
      /** @type {HTMLElement} */ (bar.firstElementChild).style.width = `${Math.min(100, (full ?? 0) * 100)}%`;
      const gone = sum(tier.evictions);
      fill(item,
        el("div", { class: "who" }, el("b", {}, named(tier.tier)), el("span", {}, named(tier.instance || tier.service), blocks === null ? "" : ` · ${count(blocks)} blocks`), el("em", { class: "num" }, full === null ? "" : percent(full))),
        bar,
        el("div", { class: "what" },
          el("span", { class: "num" }, used === null ? "–" : tier.limit ? `${bytes(used)} of ${bytes(tier.limit)}` : bytes(used)),
          el("span", { class: "gone num" }, `${count(gone)} evicted`, spark(tier.evictions))));
    });
  }
}
