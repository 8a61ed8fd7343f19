/** Why did it fall? What the server found, in plain words; most of the fall first. */
import { REASONS, slotOf } from "../charts/colours.js";
import { el, fill } from "../dom.js";
import { count, moment, named, percent, short, stretch } from "../format.js";
import { Panel } from "../panel.js";
import { AXES, address, axisWord, change, current, query } from "../state.js";

/** @typedef {{cause: string, text: string, misses: number, share: number, since: number | null, where: Record<string, string>, examples: {trace: string, span: string}[], moved?: {component: string, was: string, now: string}[]}} Cause */

const SLOTS = { flood: 2 };

export class CausesPanel extends Panel {
  constructor() {
    super({ id: "causes", title: "Why did it fall?", className: "side" });
    this.hint.textContent = "this time against the one before";
    this.verdict = el("p", { class: "verdict" });
    this.list = el("ol", { class: "causes" });
    this.body.append(this.verdict, this.list);
    /** @type {(causes: {at: number, text: string, slot: number}[]) => void} */
    this.told = () => {};
  }

  /** @param {import("../state.js").Window} range @returns {[string, URLSearchParams]} */
  question(range) {
    return ["causes", query(range)];
  }

  /** @param {{baseline: {from: number, to: number, ratio: number | null}, now: {from: number, to: number, ratio: number | null}, causes: Cause[]}} data */
  draw({ baseline, now, causes }) {
    const known = baseline?.ratio !== null && baseline?.ratio !== undefined && now?.ratio !== null && now?.ratio !== undefined;
    const fell = known && now.ratio < baseline.ratio - 0.005;
    fill(this.verdict,
      known ? el("span", { class: "from num" }, percent(baseline.ratio)) : null,
      known ? el("span", { class: "to", "aria-label": "to" }, " → ") : null,
      el("b", { class: `num ${fell ? "bad" : ""}` }, percent(now?.ratio)),
      el("span", { class: "against" }, known ? ` against ${stretch(baseline.from, baseline.to)}` : " in this time"));
    if (!causes.length) fill(this.list, el("li", { class: "none" }, fell ? "No single cause stands out. The misses by reason say more." : "It did not fall."));
    else fill(this.list, causes.map((cause, i) => this.item(cause, i)));
    this.told(causes.flatMap((c, i) => (c.since === null || c.since === undefined ? [] : [{ at: c.since, text: String(i + 1), slot: slot(c.cause) }])));
  }

  /** @param {Cause} cause @param {number} i */
  item(cause, i) {
    const bar = el("span", { class: "sharebar" }, el("i"));
    /** @type {HTMLElement} */ (bar.firstElementChild).style.width = `${Math.min(100, Math.max(0, cause.share * 100))}%`;
    const where = Object.entries(cause.where ?? {}).filter(([axis]) => AXES.includes(axis));
    const open = el("button", { type: "button", class: "pickcause", title: "Show only these" }, el("span", { class: `flagno s${slot(cause.cause)}`, "aria-hidden": "true" }, i + 1), el("span", { class: "text" }, cause.text));
    open.addEventListener("click", () => this.pick(cause));
    const examples = (cause.examples ?? []).slice(0, 3).map((e, n) => {
      const link = el("a", { href: address({ ...current(), trace: e.trace, span: e.span }) }, `example ${n + 1}`);
      link.addEventListener("click", (event) => {
        event.preventDefault();
        change({ trace: e.trace, span: e.span });
      });
      return link;
    });
    return el("li", { class: `cause s${slot(cause.cause)}` }, open, bar,
      el("p", { class: "facts" },
        el("span", { class: "num" }, `${percent(cause.share)} of the fall`), el("span", { class: "num" }, `${count(cause.misses)} misses`),
        cause.since ? el("span", {}, `since ${moment(cause.since)}`) : null),
      where.length ? el("p", { class: "where" }, where.map(([axis, value]) => el("span", { class: "tag" }, el("i", {}, axisWord(axis)), ` ${short(named(value), 40)}`))) : null,
      cause.moved?.length ? el("p", { class: "moved" }, cause.moved.slice(0, 3).map((m) => el("span", {}, el("i", {}, m.component), " ", el("del", {}, short(named(m.was), 40)), " → ", el("ins", {}, short(named(m.now), 40))))) : null,
      examples.length ? el("p", { class: "examples" }, examples) : null);
  }

  /** @param {Cause} cause */
  pick(cause) {
    const filters = { ...current().filters };
    for (const [axis, value] of Object.entries(cause.where ?? {})) if (AXES.includes(axis)) filters[axis] = [String(value)];
    if (cause.cause in REASONS) filters.reason = [cause.cause];
    change({ filters, show: "miss", picked: null });
    this.picked?.();
  }
}

/** @param {string} cause */
const slot = (cause) => SLOTS[cause] ?? slotOf("reason", cause);
