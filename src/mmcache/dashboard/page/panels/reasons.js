/** Misses over time, by reason, on top of each other: their sum is all misses. */
import { REASONS, slotOf } from "../charts/colours.js";
import { countTicks } from "../charts/scale.js";
import { TimeChart } from "../charts/time.js";
import { fill } from "../dom.js";
import { clockSeconds, count, moment } from "../format.js";
import { dataTable, Panel } from "../panel.js";
import { query } from "../state.js";

const sum = (/** @type {number[]} */ values) => values.reduce((a, b) => a + b, 0);

export class ReasonsPanel extends Panel {
  /** @param {{pick: (from: number, to: number) => void, zoom: (from: number, to: number) => void}} hands */
  constructor(hands) {
    super({ id: "reasons", title: "Misses", hint: "by reason", className: "wide", table: true });
    this.chart = new TimeChart({ label: "Misses over time by reason", kind: "areas", height: 210, ...hands, deepest: () => this.highest() });
    this.body.append(this.chart.root);
  }

  /** @param {import("../state.js").Window} range @returns {[string, URLSearchParams]} */
  question(range) {
    return ["reasons", query(range, { points: range.points })];
  }

  highest() {
    if (!this.totals?.length) return null;
    return this.totals.indexOf(Math.max(...this.totals));
  }

  /** @param {any} data @param {import("../state.js").Window} [range] */
  draw(data, range = this.range) {
    const order = Object.keys(REASONS);
    const given = Object.entries(/** @type {Record<string, number[]>} */ (data.reasons)).filter(([, values]) => sum(values) > 0);
    given.sort(([a], [b]) => (order.indexOf(a) + 99) % 99 - (order.indexOf(b) + 99) % 99);
    const series = given.map(([name, values]) => ({
      name,
      label: name,
      slot: slotOf("reason", name),
      values,
      read: (/** @type {number | null} */ i) => count(i === null ? sum(values) : values[i]),
    }));
    this.totals = data.t.map((/** @type {number} */ _, /** @type {number} */ i) => sum(given.map(([, values]) => values[i])));
    this.hint.textContent = `${count(sum(this.totals))} by reason`;
    if (!this.asTable) {
      if (!this.chart.root.isConnected) fill(this.body, this.chart.root);
      this.chart.show({ from: range.from, to: range.to, step: data.step, t: data.t, series, ticks: countTicks(Math.max(1, ...this.totals)), tickText: count });
      this.chart.resize();
      this.body.classList.toggle("nothing", series.length === 0);
      return;
    }
    const rows = data.t.map((/** @type {number} */ t, /** @type {number} */ i) => [data.step % 60 ? clockSeconds(t) : moment(t), ...given.map(([, values]) => count(values[i])), count(this.totals[i])]).reverse();
    fill(this.body, dataTable("Misses over time by reason", ["from", ...given.map(([name]) => name), "all"], rows));
  }
}
