/** Why did it fall? What the server found, in plain words; most of the fall first. */
import { REASONS, slotOf } from "../charts/colours.js";
import { below } from "../below.js";
import { el, fill, reconcile } from "../dom.js";
import { count, moment, named, percent, short, stretch, zoned } from "../format.js";
import { Panel } from "../panel.js";
import { AXES, address, axisWord, broad, change, current, query } from "../state.js";

/** @typedef {{cause: string, text: string, misses: number, share: number, since: number | null, where: Record<string, string>, examples: {trace: string, span: string}[], moved?: {component: string, was: string, now: string}[]}} Cause */

const SLOTS = { flood: 1 }; // what it brings was never stored: the colour of `absent`

export class CausesPanel extends Panel {
  constructor() {
    super({ id: "causes", title: "Why did it fall?", className: "side" });
    this.hint.textContent = "this time against the one before";
    this.verdict = el("p", { class: "verdict" });
    this.list = el("ol", { class: "causes" });
    this.rest = el("p", { class: "none" });
    this.body.append(this.verdict, this.list, this.rest);
    below(this, ".cause");
    /** @type {(causes: {at: number, text: string, slot: number}[]) => void} */
    this.told = () => {};
  }

  /** @param {import("../state.js").Window} range @returns {[string, URLSearchParams]} */
  question(range) {
    return ["causes", query(range, {}, broad())];
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
    const told = causes.filter((c) => c.share > 0);
    reconcile(this.list, told, (c) => `${c.cause} ${JSON.stringify(c.where)}`, () => this.item(), (item, cause, i) => this.tell(item, cause, i));
    const others = causes.filter((c) => c.share < -0.01).map((c) => zoned(c.text));
    fill(this.rest, ...(told.length ? others : [!known ? "There is nothing to compare: one of the two times has no lookups." : fell ? "No single cause stands out. The misses by reason say more." : "It did not fall."]));
    this.told(told.flatMap((c, i) => (c.since === null || c.since === undefined ? [] : [{ at: c.since, text: String(i + 1), slot: slot(c.cause) }])));
  }

  /** Its controls stay while what they say changes, and focus with them. */
  item() {
    const open = el("button", { type: "button", class: "pickcause", title: "Show only these" }, el("span", { class: "flagno", "aria-hidden": "true" }), el("span", { class: "text" }));
    const more = el("details", { class: "advice" }, el("summary", {}, "In words"), el("p"));
    const item = el("li", { class: "cause" }, open, el("span", { class: "sharebar" }, el("i")), el("p", { class: "facts" }), el("p", { class: "where" }), el("p", { class: "moved" }), el("p", { class: "examples" }), more);
    open.addEventListener("click", () => this.pick(/** @type {any} */ (item).cause));
    return item;
  }

  /** @param {Element} item @param {Cause} cause @param {number} i */
  tell(item, cause, i) {
    Object.assign(item, { cause });
    item.setAttribute("class", `cause s${slot(cause.cause)}`);
    const [open, bar, facts, where, moved, examples, advice] = item.children;
    const [headline, rest] = split(zoned(cause.text));
    open.children[0].textContent = String(i + 1);
    open.children[1].textContent = headline;
    /** @type {HTMLElement} */ (bar.firstElementChild).style.width = `${Math.min(100, cause.share * 100)}%`;
    fill(facts, el("b", { class: "num" }, `${percent(cause.share)} of the fall`), cause.misses >= 1 ? el("span", { class: "num" }, `${count(cause.misses)} more misses`) : null, cause.since ? el("span", {}, `since ${moment(cause.since)}`) : null);
    fill(where, ...Object.entries(cause.where ?? {}).filter(([axis]) => AXES.includes(axis)).map(([axis, value]) => el("span", { class: "tag" }, el("i", {}, axisWord(axis)), ` ${short(named(value), 40)}`)));
    fill(moved, ...(cause.moved ?? []).slice(0, 3).map((m) => el("span", {}, el("i", {}, m.component), " ", el("del", {}, short(named(m.was), 40)), " → ", el("ins", {}, short(named(m.now), 40)))));
    advice.children[1].textContent = rest;
    /** @type {HTMLElement} */ (advice).hidden = !rest;
    reconcile(examples, (cause.examples ?? []).slice(0, 3), (e) => `${e.trace}/${e.span}`, (e) => {
      const link = el("a");
      link.addEventListener("click", (event) => {
        event.preventDefault();
        change({ trace: e.trace, span: e.span });
      });
      return link;
    }, (link, e, n) => {
      link.setAttribute("href", address({ ...current(), trace: e.trace, span: e.span }));
      link.textContent = `example ${n + 1}`;
    });
  }

  /** @param {Cause} cause */
  pick(cause) {
    const filters = { ...current().filters };
    for (const [axis, value] of Object.entries(cause.where ?? {})) if (AXES.includes(axis)) filters[axis] = [value].flat().map(String);
    if (cause.cause in REASONS) filters.reason = [cause.cause];
    change({ filters, show: "miss", picked: null });
    this.picked?.();
  }
}

/** @param {string} cause */
const slot = (cause) => SLOTS[cause] ?? slotOf("reason", cause);

/** What happened, and all that is to say of it: where and since when stand beside it. @param {string} text @returns {[string, string]} */
function split(text) {
  const at = text.indexOf(": ");
  if (at <= 0 || at > 160) return [text, ""];
  const headline = text.slice(0, at);
  return [headline.replace(/ \([^()]*\)$/, ""), text];
}
