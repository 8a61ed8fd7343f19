/** The requests in the picked stretch, newest first; older ones page by page. */
import { get } from "../api.js";
import { slotOf } from "../charts/colours.js";
import { announce, assign, el, fill, icon, reconcile } from "../dom.js";
import { clockSeconds, count, day, duration, named, short, stretch } from "../format.js";
import { Panel } from "../panel.js";
import { address, change, current, query } from "../state.js";

/**
 * @typedef {{trace: string, span: string, start: number, duration_ms: number, name: string, route: string, tenant: string,
 *   region: string, client: string, modality: string, outcome: string, reason: string, detail: string, key: string,
 *   service: string, instance: string}} Request
 */
const PAGE = 50;
/** So many rows are kept while new ones come; then it begins again with the newest page. */
const MOST = 1000;
const HEADS = ["time", "outcome", "why", "modality", "route", "tenant", "instance", "key", "took"];
const SHOWN = { all: "All", miss: "Misses", hit: "Hits" };
const idOf = (/** @type {Request} */ r) => `${r.trace}/${r.span}`;

export class RequestsPanel extends Panel {
  constructor() {
    super({ id: "requests", title: "Requests", className: "full" });
    this.rows = el("tbody");
    this.none = el("p", { class: "none", hidden: true }, "No recorded request matches.");
    this.more = el("button", { type: "button", class: "small", hidden: true }, "Load older");
    this.fresh = el("button", { type: "button", class: "fresh", hidden: true });
    this.box = el("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Requests, scrolls" },
      el("table", { class: "requests" }, el("caption", { class: "sr" }, "Requests, newest first"),
        el("thead", {}, el("tr", {}, HEADS.map((h) => el("th", { scope: "col", class: h === "took" ? "num" : "" }, h)))), this.rows),
      this.none, el("div", { class: "more" }, this.more));
    this.body.append(this.fresh, this.box);
    /** @type {Request[]} */
    this.requests = [];
    /** @type {string | null} */
    this.cursor = null;
    /** @type {string | null} */
    this.waitingCursor = null;
    this.drawn = "";
    this.more.addEventListener("click", () => this.loadMore());
    this.fresh.addEventListener("click", () => {
      this.box.scrollTop = 0;
      this.cursor = this.waitingCursor;
      this.take(this.waiting ?? this.requests);
    });
    this.box.addEventListener("keydown", (event) => this.move(event));
    this.switches();
  }

  switches() {
    this.clear = el("button", { type: "button", class: "chip", hidden: true });
    this.clear.addEventListener("click", () => change({ picked: null }));
    this.shows = el("div", { class: "segmented", role: "group", "aria-label": "Outcome" });
    for (const [show, words] of Object.entries(SHOWN)) {
      const button = el("button", { type: "button", "data-show": show }, words);
      button.addEventListener("click", () => change({ show }));
      this.shows.append(button);
    }
    this.actions.prepend(this.clear, this.shows);
  }

  concern() {
    return [super.concern(), current().picked, current().show];
  }

  /** @param {import("../state.js").Window} range @returns {[string, URLSearchParams]} */
  question(range) {
    return ["requests", this.asks(range)];
  }

  /** @param {import("../state.js").Window} range @param {string} [before] */
  asks(range, before) {
    const { picked, show, filters } = current();
    const outcome = show === "all" ? filters.outcome : show === "miss" ? ["miss"] : ["hit", "near", "stale"];
    const span = picked ? { from: picked[0], to: picked[1] } : range;
    return query(span, before ? { limit: PAGE, before } : { limit: PAGE }, { ...filters, ...(outcome && { outcome }) });
  }

  /** What the state says and the server need not be asked for. */
  showState() {
    const { picked, show, trace, span } = current();
    this.clear.hidden = !picked;
    if (picked) {
      fill(this.clear, stretch(...picked), icon("close"));
      this.clear.setAttribute("aria-label", `Only ${stretch(...picked)}: remove`);
    }
    for (const button of this.shows.children) button.setAttribute("aria-pressed", String(/** @type {HTMLElement} */ (button).dataset.show === show));
    for (const row of this.rows.children) row.classList.toggle("open", /** @type {any} */ (row).itemKey === `${trace}/${span}`);
  }

  /** @param {{requests: Request[], next: string | null}} data */
  draw({ requests, next }) {
    const same = this.drawn === this.asked;
    this.drawn = this.asked;
    const known = new Set(this.requests.map(idOf));
    const added = requests.filter((r) => !known.has(idOf(r)));
    if (!same) {
      this.cursor = next;
      this.box.scrollTop = 0;
      this.take(requests);
      return;
    }
    const overlaps = added.length < requests.length && (this.requests.length < MOST || !added.length);
    const cursor = overlaps ? this.cursor : next;
    const all = overlaps ? [...added, ...this.requests] : requests;
    if (this.box.scrollTop > 4 && added.length) {
      this.waiting = all;
      this.waitingCursor = cursor;
      this.fresh.textContent = `${added.length}${added.length === PAGE ? "+" : ""} new requests`;
      this.fresh.hidden = false;
      return;
    }
    this.cursor = cursor;
    this.take(all);
  }

  /** @param {Request[]} requests */
  take(requests) {
    this.requests = requests;
    this.fresh.hidden = true;
    this.waiting = null;
    this.none.hidden = requests.length > 0;
    this.more.hidden = this.cursor === null;
    this.hint.textContent = requests.length ? `${count(requests.length)}${this.cursor ? "+" : ""} recorded, newest first` : "recorded ones, newest first";
    reconcile(this.rows, requests, idOf, (r) => this.row(r), (row, r) => this.when(row, r));
    this.showState();
  }

  /** @param {Request} r */
  row(r) {
    const link = el("a", { class: "when num" });
    const outcome = r.outcome === "miss" ? `pill s${slotOf("reason", r.reason)}` : `pill ${r.outcome === "hit" ? "good" : "quiet"}`;
    const cell = (/** @type {string} */ head, /** @type {any} */ child, name = "") => el("td", { "data-head": head, class: name, title: typeof child === "string" ? child : null }, child);
    const row = el("tr", {},
      el("th", { scope: "row" }, link),
      cell("outcome", el("span", { class: outcome }, r.outcome === "miss" ? named(r.reason) : named(r.outcome))),
      cell("why", r.detail || "", "why"),
      cell("modality", named(r.modality)),
      cell("route", named(r.route)),
      cell("tenant", named(r.tenant)),
      cell("instance", named(r.instance)),
      cell("key", short(r.key || "–", 16), "mono"),
      cell("took", duration(r.duration_ms / 1000), "num"));
    row.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      if (getSelection()?.toString()) return;
      link.focus({ preventScroll: true });
      change({ trace: r.trace, span: r.span });
    });
    return row;
  }

  /** What depends on the zone, and on what else is chosen. @param {Element} row @param {Request} r */
  when(row, r) {
    const link = /** @type {HTMLAnchorElement} */ (row.querySelector(".when"));
    const text = `${clockSeconds(r.start)}.${String(Math.floor((r.start % 1) * 1000)).padStart(3, "0")}`;
    if (link.textContent !== text) link.textContent = text;
    link.title = day(r.start);
    link.setAttribute("href", address({ ...current(), trace: r.trace, span: r.span }));
  }

  async loadMore() {
    if (!this.cursor || this.paging || !this.range) return;
    this.paging = true;
    assign(this.more, { "aria-disabled": "true" });
    this.more.textContent = "Loading…";
    const asked = this.asked;
    try {
      const { requests, next } = await get("requests", this.asks(this.range, this.cursor));
      if (asked !== this.asked) return;
      const known = new Set(this.requests.map(idOf));
      this.cursor = next;
      const first = this.requests.length;
      this.take([...this.requests, ...requests.filter((/** @type {Request} */ r) => !known.has(idOf(r)))]);
      announce(`${requests.length} older requests`);
      if (this.more.hidden) /** @type {HTMLElement | null} */ (this.rows.children[first]?.querySelector("a"))?.focus({ preventScroll: true });
    } catch (error) {
      this.fail(/** @type {Error} */ (error));
    } finally {
      this.paging = false;
      assign(this.more, { "aria-disabled": null });
      this.more.textContent = "Load older";
    }
  }

  /** @param {KeyboardEvent} event */
  move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
    const row = /** @type {HTMLElement} */ (event.target).closest("tbody tr");
    if (!step || !row) return;
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    /** @type {HTMLElement | null | undefined} */ (next?.querySelector("a"))?.focus();
    event.preventDefault();
  }
}
