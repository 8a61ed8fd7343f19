/** The open trace, a dialog above the charts: waterfall, the chosen span's attributes, and why it missed. */
import { get } from "./api.js";
import { announce, el, fill, icon } from "./dom.js";
import { clockSeconds, day, duration, short, usesUtc } from "./format.js";
import { attributes } from "./panels/attributes.js";
import { Explain } from "./panels/explain.js";
import { Waterfall } from "./panels/waterfall.js";
import { change, current } from "./state.js";

/** @typedef {import("./panels/waterfall.js").Span} Span */

export class Drawer {
  /** @param {HTMLDialogElement} root */
  constructor(root) {
    this.root = root;
    this.title = el("h2", { tabindex: "-1" }, "Trace");
    this.facts = el("p", { class: "hint" });
    const link = el("button", { type: "button", class: "ghost", title: "Copy the link", "aria-label": "Copy the link" }, icon("link"));
    link.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(location.href);
        announce("The link is copied");
        this.facts.textContent = "The link is copied";
      } catch {
        this.facts.textContent = "The browser does not let the link be copied; it is in the address bar";
      }
    });
    const close = el("button", { type: "button", class: "ghost", title: "Close (Esc)", "aria-label": "Close the trace" }, icon("close"));
    close.addEventListener("click", () => this.close());
    this.waterfall = new Waterfall((span) => change({ span }, { replace: true }));
    this.explain = new Explain();
    this.detail = el("section", { class: "detail", "aria-label": "Attributes" });
    this.body = el("div", { class: "inner" });
    fill(root, el("header", {}, el("div", { class: "title" }, this.title, this.facts), el("div", { class: "actions" }, link, close)), this.body, el("div", { class: "sr announced", role: "status", "aria-live": "polite" }));
    root.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.close();
    });
    root.addEventListener("close", () => current().trace && this.close());
    let outside = false; // a selection that is dragged out of it does not close it
    root.addEventListener("pointerdown", (event) => (outside = event.target === root));
    root.addEventListener("click", (event) => outside && event.target === root && this.close());
    this.shown = "";
    /** @type {AbortController | null} */
    this.asking = null;
    /** @type {Element | null} */
    this.opener = null;
  }

  /** @param {import("./state.js").State} state */
  show(state) {
    if (!state.trace) {
      if (this.shown) this.hide();
      return;
    }
    if (!this.root.open) {
      this.opener = document.activeElement;
      this.root.showModal();
      this.title.focus({ preventScroll: true });
    }
    if (state.trace !== this.shown) this.load(state.trace);
    else if (this.spans) this.draw(this.spans);
  }

  hide() {
    this.asking?.abort();
    this.shown = "";
    this.root.close();
    this.explain.shown = "";
    const back = this.opener instanceof HTMLElement && this.opener.isConnected && this.opener !== document.body ? this.opener : document.querySelector("#requests tbody a");
    /** @type {HTMLElement | null} */ (back)?.focus({ preventScroll: true });
  }

  close() {
    change({ trace: "", span: "" });
  }

  /** @param {string} trace */
  async load(trace) {
    this.shown = trace;
    this.spans = null;
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    this.title.textContent = `Trace ${short(trace, 12)}`;
    this.title.title = trace;
    this.facts.textContent = "Loading…";
    fill(this.body, el("div", { class: "skeleton lines", "aria-hidden": "true" }, el("i"), el("i"), el("i"), el("i")));
    try {
      const data = await get(`traces/${encodeURIComponent(trace)}`, null, asking.signal);
      if (this.asking !== asking) return;
      if (!data.spans?.length) throw new Error("Nothing is kept of this trace any more.");
      this.spans = /** @type {Span[]} */ (data.spans);
      this.waterfall.folded = new Set();
      this.explain.shown = "";
      fill(this.body, this.waterfall.root, this.waterfall.cut, this.explain.root, this.detail);
      this.draw(this.spans);
    } catch (error) {
      if (this.asking !== asking) return;
      const retry = el("button", { type: "button", class: "small" }, "Try again");
      retry.addEventListener("click", () => this.load(trace));
      this.facts.textContent = "";
      fill(this.body, el("div", { class: "notice" }, el("p", { role: "alert" }, el("b", {}, "No trace. "), /** @type {Error} */ (error).message), retry));
    }
  }

  /** @param {Span[]} spans */
  draw(spans) {
    const { trace, span, filters } = current();
    const begin = Math.min(...spans.map((s) => s.start));
    const end = Math.max(...spans.map((s) => s.start + s.duration_ms / 1000));
    const services = new Set(spans.map((s) => s.instance || s.service));
    this.facts.textContent = `${day(begin)}, ${clockSeconds(begin)} · ${duration(end - begin)} · ${spans.length} span${spans.length === 1 ? "" : "s"} · ${services.size} process${services.size === 1 ? "" : "es"}`;
    const chosen = spans.find((s) => s.span === span) ?? spans.find((s) => s.name === "cache.lookup" && s.attributes["cache.hit"] !== true) ?? spans[0];
    this.waterfall.show(spans, chosen.span);
    const lookup = chosen.name === "cache.lookup";
    this.explain.root.hidden = !lookup;
    if (lookup) this.explain.show(trace, chosen.span);
    const detailed = JSON.stringify([trace, chosen.span, filters, usesUtc()]);
    if (detailed === this.detailed) return; // what is selected or has the focus stays, whatever ticks
    this.detailed = detailed;
    fill(this.detail, el("h3", {}, chosen.name), attributes(chosen));
  }
}
