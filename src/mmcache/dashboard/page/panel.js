/**
 * One panel: asks the server for its data and draws them. At most one question of it is on its way; an answer to an
 * older question is dropped; while a newer one is on its way the old drawing stays, so that nothing jumps.
 */
import { get } from "./api.js";
import { assign, el, fill, icon } from "./dom.js";
import { current } from "./state.js";

export class Panel {
  /** @param {{id: string, title: string, hint?: string, className?: string, table?: boolean}} about */
  constructor(about) {
    this.about = about;
    this.heading = el("h2", { id: `${about.id}-title` }, about.title);
    this.hint = el("p", { class: "hint" }, about.hint ?? "");
    this.actions = el("div", { class: "actions" });
    this.body = el("div", { class: "body" });
    this.notice = el("div", { class: "notice", hidden: true });
    this.skeleton = el("div", { class: "skeleton", "aria-hidden": "true" }, el("i"), el("i"), el("i"));
    this.root = el("section", { class: `panel ${about.className ?? ""}`, id: about.id, "aria-labelledby": `${about.id}-title`, "aria-busy": "true" },
      el("header", {}, el("div", { class: "title" }, this.heading, this.hint), this.actions), this.skeleton, this.body, this.notice);
    /** @type {AbortController | null} */
    this.asking = null;
    this.asked = "";
    this.again = false;
    this.loaded = false;
    this.asTable = false;
    if (about.table) this.offerTable();
  }

  offerTable() {
    const button = el("button", { type: "button", class: "ghost", "aria-pressed": "false", "aria-label": `${this.about.title} as a table`, title: "As a table" }, icon("table"));
    button.addEventListener("click", () => {
      this.asTable = !this.asTable;
      assign(button, { "aria-pressed": String(this.asTable) });
      if (this.loaded) this.draw(this.data);
    });
    this.actions.append(button);
  }

  /** What is asked: path and query. @param {import("./state.js").Window} _range @returns {[string, URLSearchParams]} */
  question(_range) {
    throw new Error("not implemented");
  }

  /** What the question depends on; while it is the same, only ticks ask again. @returns {unknown} */
  concern() {
    const { range, from, to, filters } = current();
    return [range, from, to, filters];
  }

  /** @param {any} _data @param {import("./state.js").Window} [_range] */
  draw(_data, _range) {}

  /** @param {import("./state.js").Window} range @param {boolean} tick newer data may be there */
  async refresh(range, tick) {
    const concern = JSON.stringify(this.concern());
    if (concern === this.asked) {
      if (!tick) return;
      if (this.asking) {
        this.again = true;
        return;
      }
    }
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    if (concern !== this.asked) this.root.setAttribute("aria-busy", "true");
    this.asked = concern;
    this.again = false;
    this.range = range;
    try {
      const data = await get(...this.question(range), asking.signal);
      if (this.asking !== asking) return;
      this.asking = null;
      this.data = data;
      this.loaded = true;
      this.root.classList.remove("failed", "bare");
      this.notice.hidden = true;
      this.draw(data, range);
    } catch (error) {
      if (this.asking !== asking) return;
      this.asking = null;
      this.fail(/** @type {Error} */ (error));
    }
    this.root.setAttribute("aria-busy", "false");
    this.root.classList.add("ready");
    if (this.again) this.owner?.(this);
  }

  /** @param {Error} error */
  fail(error) {
    this.root.classList.add("failed");
    this.root.classList.toggle("bare", !this.loaded);
    const retry = el("button", { type: "button", class: "small" }, "Try again");
    retry.addEventListener("click", () => {
      this.asked = "";
      this.owner?.(this);
    });
    fill(this.notice, el("p", { role: "alert" }, el("b", {}, this.loaded ? "Not up to date. " : "No data. "), error.message), retry);
    this.notice.hidden = false;
  }
}

/** A table of a chart's numbers. @param {string} caption @param {string[]} heads @param {(string | number)[][]} rows */
export function dataTable(caption, heads, rows) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", { class: "data" }, el("caption", { class: "sr" }, caption),
      el("thead", {}, el("tr", {}, heads.map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => (i ? el("td", {}, cell) : el("th", { scope: "row" }, cell))))))));
}
