/** A chart over time: lines, or areas on top of each other; a cursor that reads, a brush that zooms. */
import { assign, el, fill, svg } from "../dom.js";
import { clockSeconds, clock, day } from "../format.js";
import { cursor, onCursor, point } from "./cursor.js";
import { handle } from "./hand.js";
import { Legend } from "./legend.js";
import { areaPath, linear, linePath, timeTicks } from "./scale.js";

const MARGIN = { left: 46, right: 10, top: 18, bottom: 24 };

/**
 * @typedef {import("./legend.js").Series} Series
 * @typedef {{from: number, to: number, step: number, t: number[], series: Series[], ticks: number[], tickText: (v: number) => string}} Picture
 * @typedef {{at: number, text: string, slot: number}} Mark
 */
export class TimeChart {
  /**
   * @param {object} options
   * @param {string} options.label for who does not see it
   * @param {"lines" | "areas"} options.kind
   * @param {number} options.height
   * @param {(from: number, to: number) => void} options.pick
   * @param {(from: number, to: number) => void} options.zoom
   * @param {() => number | null} [options.deepest]
   */
  constructor(options) {
    this.options = options;
    /** @type {Picture | null} */
    this.picture = null;
    /** @type {Mark[]} */
    this.marks = [];
    /** @type {[number, number] | null} */
    this.picked = null;
    this.width = 0;
    this.height = options.height;
    this.back = svg("g");
    this.shapes = svg("g", { class: "shapes" });
    this.front = svg("g");
    this.over = svg("g", { class: "over" });
    this.canvas = svg("svg", { class: "canvas", "aria-hidden": "true" }, this.back, this.shapes, this.front, this.over);
    this.stamp = el("div", { class: "stamp", hidden: true });
    this.plot = el("div", { class: "plot", tabindex: "0", role: "slider", "aria-label": options.label, "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0", "aria-valuetext": "no data" }, this.canvas, this.stamp);
    this.plot.style.minHeight = `${options.height}px`;
    this.legend = new Legend({ changed: () => this.draw(), look: (name) => this.look(name) });
    this.root = el("div", { class: "chart" }, this.plot, this.legend.root);
    new ResizeObserver(() => this.resize()).observe(this.plot);
    onCursor((at) => this.showCursor(at));
    handle({
      plot: this.plot,
      size: () => this.picture?.t.length ?? 0,
      bucketAt: (x) => this.bucketAt(x),
      pointAt: (i) => point(i === null || !this.picture ? null : this.picture.t[i]),
      pointed: () => this.indexOf(cursor()),
      brush: (range) => this.brush(range),
      pick: ([a, b]) => this.picture && options.pick(this.picture.t[a], this.picture.t[b] + this.picture.step),
      zoom: ([a, b]) => this.picture && options.zoom(this.picture.t[a], this.picture.t[b] + this.picture.step),
      deepest: options.deepest ?? (() => null),
    });
  }

  /** @param {Picture} picture */
  show(picture) {
    this.picture = picture;
    this.legend.show(picture.series);
    assign(this.plot, { "aria-valuemax": String(Math.max(0, picture.t.length - 1)) });
    this.draw();
  }

  /** @param {{marks?: Mark[], picked?: [number, number] | null}} what */
  annotate(what) {
    if (what.marks) this.marks = what.marks;
    if (what.picked !== undefined) this.picked = what.picked;
    this.draw();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.plot;
    if (width && (width !== this.width || height !== this.height)) {
      this.width = width;
      this.height = height;
      this.draw();
    }
  }

  get x() {
    const { from, to } = /** @type {Picture} */ (this.picture);
    return linear(from, to, MARGIN.left, this.width - MARGIN.right);
  }

  /** @param {number} pixel */
  bucketAt(pixel) {
    const { from, to, t, step } = /** @type {Picture} */ (this.picture);
    const at = from + ((pixel - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right)) * (to - from);
    return Math.min(t.length - 1, Math.max(0, Math.floor((at - t[0]) / step)));
  }

  /** @param {number | null} at */
  indexOf(at) {
    const picture = this.picture;
    if (at === null || !picture?.t.length) return null;
    const i = Math.floor((at - picture.t[0]) / picture.step + 1e-6);
    return i >= 0 && i < picture.t.length ? i : null;
  }

  draw() {
    const picture = this.picture;
    if (!picture || !this.width) return;
    const { height } = this;
    const floor = height - MARGIN.bottom;
    assign(this.canvas, { width: this.width, height, viewBox: `0 0 ${this.width} ${height}` });
    const { x } = this;
    const y = linear(0, picture.ticks[picture.ticks.length - 1] || 1, floor, MARGIN.top);
    const right = this.width - MARGIN.right;
    const grid = picture.ticks.map((v) => [
      svg("line", { class: v ? "rule" : "axis", x1: MARGIN.left, x2: right, y1: y(v), y2: y(v) }),
      svg("text", { class: "tick", x: MARGIN.left - 8, y: y(v) + 3.5, "text-anchor": "end" }, picture.tickText(v)),
    ]);
    const times = timeTicks(picture.from, picture.to, right - MARGIN.left).map(({ at, text }) => [
      svg("line", { class: "axis", x1: x(at), x2: x(at), y1: floor, y2: floor + 4 }),
      svg("text", { class: "tick", x: Math.min(x(at), right - 14), y: floor + 17, "text-anchor": "middle" }, text),
    ]);
    fill(this.back, this.band(floor), ...grid, ...times);
    const middle = (/** @type {number} */ i) => x(picture.t[i] + picture.step / 2);
    fill(this.shapes, this.options.kind === "lines" ? this.lines(picture, middle, y) : this.areas(picture, middle, y));
    let taken = -Infinity; // flags that would cover each other stand side by side
    const marks = this.marks.filter((m) => m.at >= picture.from && m.at <= picture.to).sort((a, b) => a.at - b.at);
    fill(this.front, marks.map((m) => this.flag(m, floor, (taken = Math.max(x(m.at), taken + 18)))));
    this.showCursor(cursor());
  }

  /** @param {number} floor */
  band(floor) {
    const { from, to } = /** @type {Picture} */ (this.picture);
    if (!this.picked || this.picked[1] <= from || this.picked[0] >= to) return null;
    const left = this.x(Math.max(from, this.picked[0]));
    const right = this.x(Math.min(to, this.picked[1]));
    return svg("rect", { class: "picked", x: left, width: Math.max(2, right - left), y: MARGIN.top, height: floor - MARGIN.top });
  }

  /** @param {Mark} mark @param {number} floor @param {number} head where its number stands */
  flag(mark, floor, head) {
    const at = this.x(mark.at);
    return svg("g", { class: `mark s${mark.slot}` },
      svg("line", { x1: at, x2: at, y1: MARGIN.top - 2, y2: floor }),
      svg("circle", { cx: head, cy: MARGIN.top - 9, r: 8 }),
      svg("text", { x: head, y: MARGIN.top - 5.4, "text-anchor": "middle" }, mark.text));
  }

  /** @param {Picture} picture @param {(i: number) => number} x @param {(v: number) => number} y */
  lines(picture, x, y) {
    const seen = picture.series.filter((s) => !this.legend.hidden.has(s.name));
    return seen.map((s) => svg("path", { class: `line s${s.slot}`, d: linePath(s.values, x, y), "data-name": s.name }));
  }

  /** @param {Picture} picture @param {(i: number) => number} x @param {(v: number) => number} y */
  areas(picture, x, y) {
    let lower = picture.t.map(() => 0);
    return picture.series.filter((s) => !this.legend.hidden.has(s.name)).map((s) => {
      const upper = lower.map((v, i) => v + (s.values[i] ?? 0));
      const path = svg("path", { class: `area s${s.slot}`, d: areaPath(lower, upper, x, y), "data-name": s.name });
      lower = upper;
      return path;
    });
  }

  /** @param {string | null} name */
  look(name) {
    this.shapes.classList.toggle("dimmed", name !== null);
    for (const shape of this.shapes.children) shape.classList.toggle("looked", shape.getAttribute("data-name") === name);
  }

  /** @param {[number, number] | null} range */
  brush(range) {
    const picture = this.picture;
    this.brushed = range;
    if (picture) this.showCursor(cursor());
  }

  /** @param {number | null} at */
  showCursor(at) {
    const picture = this.picture;
    if (!picture || !this.width) return;
    const i = this.indexOf(at);
    this.legend.read(i);
    this.stamp.hidden = i === null;
    const floor = this.height - MARGIN.bottom;
    const shapes = [];
    if (this.brushed) {
      const left = this.x(picture.t[this.brushed[0]]);
      const right = this.x(picture.t[this.brushed[1]] + picture.step);
      shapes.push(svg("rect", { class: "brush", x: left, width: right - left, y: MARGIN.top, height: floor - MARGIN.top }));
    }
    if (i !== null) {
      const here = this.x(picture.t[i] + picture.step / 2);
      shapes.push(svg("line", { class: "cursor", x1: here, x2: here, y1: MARGIN.top, y2: floor }));
      if (this.options.kind === "lines") {
        const y = linear(0, picture.ticks[picture.ticks.length - 1] || 1, floor, MARGIN.top);
        for (const s of picture.series) {
          const value = s.values[i];
          if (value !== null && value !== undefined && !this.legend.hidden.has(s.name)) shapes.push(svg("circle", { class: `at s${s.slot}`, cx: here, cy: y(value), r: 3.5 }));
        }
      }
      const start = picture.t[i];
      const text = `${picture.step >= 86_400 ? `${day(start)} ` : ""}${picture.step % 60 ? clockSeconds(start) : clock(start)}`;
      this.stamp.textContent = text;
      this.stamp.style.left = `${Math.min(this.width - 34, Math.max(34, here))}px`;
      const said = picture.series.filter((s) => !this.legend.hidden.has(s.name)).map((s) => `${s.label} ${s.read(i)}`);
      assign(this.plot, { "aria-valuenow": String(i), "aria-valuetext": `${text}: ${said.join(", ") || "nothing"}` });
    }
    fill(this.over, shapes);
  }
}
