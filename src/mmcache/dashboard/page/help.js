/** The keys, on `?`; and what each does. */
import { el, fill, icon } from "./dom.js";

const KEYS = [
  ["Anywhere", [
    ["?", "this list"], ["f", "add a filter"], ["1 … 4", "the last 15 minutes, hour, 6 hours, 24 hours"], ["0", "choose a time"],
    ["c", "to the chart of the hit ratio"], ["q", "to the requests"], ["g", "to the graph of hot keys"], ["r", "ask the server again"], ["t", "light or dark"], ["Esc", "close, or back to the wider time"],
  ]],
  ["On a chart", [
    ["← →", "move the cursor; Page Up and Page Down by ten"], ["Shift + ← →", "mark a stretch"], ["d", "to the deepest dip"],
    ["Enter", "list the requests there"], ["z", "zoom into the stretch"], ["drag", "zoom; Shift + drag lists the requests"],
  ]],
  ["In the graph", [["← ↑ → ↓", "to the key beside"], ["Page Up, Page Down", "to the next hotter, cooler; Home and End"], ["Enter", "show it; Esc leaves it"]]],
  ["In requests and traces", [["↑ ↓", "next and last"], ["Enter", "open"], ["← →", "fold and unfold spans"]]],
];

export class Help {
  constructor() {
    this.single = /** @type {HTMLInputElement} */ (el("input", { type: "checkbox" }));
    this.single.checked = true;
    try {
      this.single.checked = localStorage.getItem("mmcache.keys") !== "off";
    } catch {
      // They are on.
    }
    this.single.addEventListener("change", () => {
      try {
        localStorage.setItem("mmcache.keys", this.single.checked ? "on" : "off");
      } catch {
        // It holds until the page is left.
      }
    });
    const close = el("button", { type: "button", class: "ghost", "aria-label": "Close" }, icon("close"));
    this.root = /** @type {HTMLDialogElement} */ (el("dialog", { class: "help", "aria-labelledby": "help-title" }));
    close.addEventListener("click", () => this.root.close());
    this.root.addEventListener("click", (event) => event.target === this.root && this.root.close());
    fill(this.root, el("div", {}, el("header", {}, el("h2", { id: "help-title" }, "Keys"), close),
      KEYS.map(([title, keys]) => el("section", {}, el("h3", {}, String(title)), el("dl", {}, /** @type {string[][]} */ (keys).map(([key, words]) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, words)))))),
      el("label", { class: "single" }, this.single, "Use single keys")));
  }

  open() {
    if (!this.root.open) this.root.showModal();
  }

  /** @param {Record<string, () => void>} actions */
  listen(actions) {
    document.addEventListener("keydown", (event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || this.root.open) return;
      if (document.querySelector("dialog[open]") && !["Escape", "?", "t"].includes(event.key)) return;
      if (target.matches("input, select, textarea") && event.key !== "Escape") return;
      const action = actions[event.key];
      if (!action || (event.key.length === 1 && !this.single.checked)) return;
      event.preventDefault();
      action();
    });
  }
}
