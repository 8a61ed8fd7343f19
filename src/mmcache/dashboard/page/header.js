/** The bar on top: which time, by which axis, whether it is live, how it looks. */
import { el, fill, icon, svg } from "./dom.js";
import { clockSeconds, count, stretch, usesUtc, useUtc } from "./format.js";
import { axisWord, change, current, PICKABLE, RANGES, zoomOut } from "./state.js";

const HEALTH = { live: "Live", waiting: "Connecting", lost: "Reconnecting", hidden: "Paused" };

/** @param {number} seconds Unix @returns {string} as a `datetime-local` field takes it */
function forField(seconds) {
  const shift = usesUtc() ? 0 : new Date(seconds * 1000).getTimezoneOffset() * 60;
  return new Date((seconds - shift) * 1000).toISOString().slice(0, 19);
}

/** @param {string} text @returns {number} Unix seconds, or NaN */
const fromField = (text) => new Date(usesUtc() ? `${text}Z` : text).getTime() / 1000;

export class Header {
  /** @param {HTMLElement} root @param {{find: HTMLElement, redraw: () => void, help: () => void, window: () => {from: number, to: number}}} owner */
  constructor(root, owner) {
    this.owner = owner;
    const mark = svg("svg", { viewBox: "0 0 24 24", class: "logo", "aria-hidden": "true" },
      svg("rect", { width: 24, height: 24, rx: 6 }), svg("path", { d: "M4 9h5l3 8 3-8h5" }));
    this.live = el("span", { class: "live", "data-health": "waiting" }, el("i"), el("span", {}, "Connecting"));
    fill(root, el("div", { class: "bar" },
      el("h1", {}, mark, el("span", {}, "mmcache"), el("small", {}, "why did it miss?")),
      this.ranges(), this.out, this.axis(), owner.find, el("span", { class: "space" }), this.live, this.zone(), this.theme(), this.help()), this.custom());
  }

  ranges() {
    this.range = el("div", { class: "segmented", role: "group", "aria-label": "Time range" });
    Object.entries(RANGES).forEach(([name, { words }], i) => {
      const button = el("button", { type: "button", "data-range": name, title: `The last ${words} (${i + 1})` }, name.replace(/(\d+)/, "$1\u2009"));
      button.addEventListener("click", () => change({ range: name, from: null, to: null, picked: null }));
      this.range?.append(button);
    });
    const custom = el("button", { type: "button", "data-range": "custom", "aria-expanded": "false", "aria-controls": "custom", class: "num" }, "Custom");
    custom.addEventListener("click", () => this.toggleCustom());
    this.range.append(custom);
    this.customButton = custom;
    this.out = el("button", { type: "button", class: "small", hidden: true, title: "Back to the wider time (Esc)" }, "Zoom out");
    this.out.addEventListener("click", () => zoomOut());
    return this.range;
  }

  custom() {
    const field = (/** @type {string} */ label) => el("input", { type: "datetime-local", step: "1", "aria-label": label });
    this.fields = [/** @type {HTMLInputElement} */ (field("From")), /** @type {HTMLInputElement} */ (field("To"))];
    this.wrong = el("span", { class: "wrong", role: "alert" });
    const apply = el("button", { type: "button", class: "primary small" }, "Show");
    apply.addEventListener("click", () => this.apply());
    this.pop = el("div", { class: "pop", id: "custom", role: "group", "aria-label": "Custom time", hidden: true },
      el("label", {}, "From", this.fields[0]), el("label", {}, "To", this.fields[1]), apply, this.wrong);
    this.pop.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && /** @type {Element} */ (event.target).tagName === "INPUT") this.apply();
      if (event.key === "Escape") {
        event.stopPropagation();
        this.toggleCustom();
        this.customButton?.focus();
      }
    });
    return this.pop;
  }

  toggleCustom() {
    const pop = /** @type {HTMLElement} */ (this.pop);
    pop.hidden = !pop.hidden;
    this.customButton?.setAttribute("aria-expanded", String(!pop.hidden));
    if (pop.hidden || !this.fields) return;
    const { from, to } = this.owner.window();
    this.fields[0].value = forField(from);
    this.fields[1].value = forField(to);
    this.fields[0].focus();
  }

  apply() {
    const [from, to] = (this.fields ?? []).map((f) => fromField(f.value));
    const right = Number.isFinite(from) && Number.isFinite(to) && to > from;
    if (this.wrong) this.wrong.textContent = right ? "" : "The end must come after the beginning.";
    if (!right) return;
    this.toggleCustom();
    change({ range: "custom", from, to, picked: null }, { zoom: true });
  }

  axis() {
    this.select = /** @type {HTMLSelectElement} */ (el("select", { "aria-label": "Hit ratio by" }, el("option", { value: "" }, "all together"), PICKABLE.map((a) => el("option", { value: a }, axisWord(a)))));
    this.select.addEventListener("change", () => change({ by: this.select?.value ?? "" }));
    return el("label", { class: "axis-pick" }, el("span", {}, "by"), this.select);
  }

  zone() {
    const button = el("button", { type: "button", class: "ghost zone" }, usesUtc() ? "UTC" : "Local");
    const label = () => button.setAttribute("aria-label", `Times are ${usesUtc() ? "UTC; show local time" : "local; show UTC"}`);
    label();
    button.addEventListener("click", () => {
      useUtc(!usesUtc());
      button.textContent = usesUtc() ? "UTC" : "Local";
      label();
      this.owner.redraw();
    });
    return button;
  }

  theme() {
    const button = el("button", { type: "button", class: "ghost", title: "Light or dark (t)", "aria-label": "Light or dark" }, icon("theme"));
    button.addEventListener("click", () => this.toggleTheme());
    return button;
  }

  toggleTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try {
      localStorage.setItem("mmcache.theme", root.dataset.theme);
    } catch {
      // It holds until the page is left.
    }
  }

  help() {
    const button = el("button", { type: "button", class: "ghost", title: "Keys (?)", "aria-label": "Keys" }, icon("help"));
    button.addEventListener("click", () => this.owner.help());
    return button;
  }

  /** @param {import("./state.js").State} state @param {import("./state.js").Window} range */
  showState(state, range) {
    this.moving = range.live;
    this.showHealth(this.health ?? "waiting");
    for (const button of this.range?.children ?? []) button.setAttribute("aria-pressed", String(/** @type {HTMLElement} */ (button).dataset.range === state.range));
    if (this.customButton) this.customButton.textContent = state.range === "custom" ? stretch(Number(state.from), Number(state.to), true) : "Custom";
    if (this.select) this.select.value = state.by;
    if (this.out) this.out.hidden = state.range !== "custom";
  }

  /** @param {import("./live.js").Health} health */
  showHealth(health) {
    this.health = health;
    const fixed = health === "live" && !this.moving;
    this.live.dataset.health = fixed ? "fixed" : health;
    this.live.title = fixed ? "The charts show a time that is over; new spans do not move them" : "";
    /** @type {HTMLElement} */ (this.live.lastElementChild).textContent = fixed ? "Fixed time" : HEALTH[health];
  }

  /** @param {{to?: number, spans?: number}} tick */
  showTick({ to, spans }) {
    if (!this.moving) return;
    if (to) this.live.title = `Newest span ${clockSeconds(to)}${spans ? `; ${count(spans)} came just now` : ""}`;
    this.live.classList.remove("beat");
    void this.live.offsetWidth; // starts the animation again
    this.live.classList.add("beat");
  }
}

/** The state, for who wants the page's title to say it. */
export const titleOf = () => {
  const said = Object.entries(current().filters).map(([axis, values]) => `${axisWord(axis)} ${values.join(" or ")}`);
  return `${said.length ? `${said.join(", ")} · ` : ""}mmcache: why did it miss?`;
};
