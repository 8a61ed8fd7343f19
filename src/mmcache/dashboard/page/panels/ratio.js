/** The hit ratio over time, by the chosen axis. */
import { reserve, slotsOf } from "../charts/colours.js";
import { TimeChart } from "../charts/time.js";
import { el, fill } from "../dom.js";
import { clockSeconds, count, moment, named, percent } from "../format.js";
import { dataTable, Panel } from "../panel.js";
import { axisWord, broad, current, query } from "../state.js";

const TICKS = [0, 0.25, 0.5, 0.75, 1];
const sum = (/** @type {(number | null)[]} */ values) => values.reduce((a, b) => a + (b ?? 0), 0);

export class RatioPanel extends Panel {
  /** @param {{pick: (from: number, to: number) => void, zoom: (from: number, to: number) => void}} hands */
  constructor(hands) {
    super({ id: "ratio", title: "Hit ratio", className: "wide", table: true });
    this.chart = new TimeChart({ label: "Hit ratio over time", kind: "lines", height: 250, ...hands, deepest: () => this.deepest() });
    this.body.append(this.chart.root);
    /** @type {(all: {hits: number[], misses: number[]}) => void} */
    this.told = () => {};
  }

  concern() {
    return [super.concern(), current().by];
  }

  /** @param {import("../state.js").Window} range @returns {[string, URLSearchParams]} */
  question(range) {
    const { by } = current();
    return ["ratio", query(range, by ? { by, points: range.points } : { points: range.points }, broad())];
  }

  /** @param {any} data @param {import("../state.js").Window} [range] */
  draw(data, range = this.range) {
    const { by } = current();
    const axis = by || "all";
    reserve(axis, data.series.map((/** @type {any} */ s) => String(s.name)).sort());
    const slots = slotsOf(axis, data.series.map((/** @type {any} */ s) => String(s.name)));
    const series = data.series.map((/** @type {any} */ s, /** @type {number} */ n) => ({
      name: String(s.name),
      label: by ? named(s.name) : "all lookups",
      slot: slots[n],
      values: s.ratio,
      read: (/** @type {number | null} */ i) => percent(i === null ? share(sum(s.hits), sum(s.misses)) : s.ratio[i]),
    }));
    const hits = data.t.map((/** @type {number} */ _, /** @type {number} */ i) => sum(data.series.map((/** @type {any} */ s) => s.hits[i])));
    const misses = data.t.map((/** @type {number} */ _, /** @type {number} */ i) => sum(data.series.map((/** @type {any} */ s) => s.misses[i])));
    this.all = { hits, misses };
    this.told(this.all);
    const { reason, outcome } = current().filters;
    this.hint.textContent = `${by ? `by ${axisWord(by)}` : "of all lookups"}${reason || outcome ? "; reason and outcome do not narrow it" : ""}`;
    if (!this.asTable) {
      if (!this.chart.root.isConnected) fill(this.body, this.chart.root);
      this.chart.show({ from: range.from, to: range.to, step: data.step, t: data.t, series, ticks: TICKS, tickText: percent });
      this.chart.resize();
      this.body.classList.toggle("nothing", series.length === 0);
      return;
    }
    const rows = data.t.map((/** @type {number} */ t, /** @type {number} */ i) => [data.step % 60 ? clockSeconds(t) : moment(t), ...series.map((/** @type {any} */ s) => percent(s.values[i])), count(hits[i] + misses[i])]).reverse();
    fill(this.body, dataTable("Hit ratio over time", ["from", ...series.map((/** @type {any} */ s) => s.label), "lookups"], rows));
  }

  /** The bucket that lost most: fewest hits for its lookups, weighed by how many there were. */
  deepest() {
    if (!this.all) return null;
    const { hits, misses } = this.all;
    const busy = (sum(hits) + sum(misses)) / Math.max(1, hits.length) / 4;
    let best = null;
    let lowest = 2;
    hits.forEach((h, i) => {
      const ratio = share(h, misses[i]);
      if (ratio !== null && h + misses[i] >= busy && ratio < lowest) [best, lowest] = [i, ratio];
    });
    return best;
  }
}

/** @param {number} hits @param {number} misses */
export const share = (hits, misses) => (hits + misses > 0 ? hits / (hits + misses) : null);
