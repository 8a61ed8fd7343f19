/** The communities: which there are, since when, how large, and which have gone. */
import { el, fill, reconcile } from "../dom.js";
import { count, moment, stretch } from "../format.js";
import { sign } from "./looks.js";

/** @typedef {import("./looks.js").Community} Community */
const STATES = ["appeared", "living", "fading", "faded"];

export class Communities {
  /** @param {(id: string) => void} picked */
  constructor(picked) {
    this.picked = picked;
    this.heading = el("h3", {}, "Communities");
    this.counts = el("p", { class: "hint" });
    this.list = el("ul", { class: "communities", "aria-label": "Communities" });
    this.none = el("p", { class: "none" }, "No keys are used together yet.");
    this.root = el("section", { class: "together" }, this.heading, this.counts, this.none, this.list);
  }

  /** @param {Community[]} communities @param {Map<string, string>} titles @param {string} chosen id */
  show(communities, titles, chosen) {
    this.none.hidden = communities.length > 0;
    this.counts.textContent = STATES.map((state) => [state, communities.filter((one) => one.state === state).length]).filter(([, n]) => n).map(([state, n]) => `${n} ${state}`).join(" · ");
    reconcile(this.list, communities, (one) => one.id, (one) => {
      const button = el("button", { type: "button" });
      button.addEventListener("click", () => this.picked(one.id));
      return el("li", {}, button);
    }, (item, one) => {
      const button = /** @type {HTMLElement} */ (item.firstElementChild);
      const took = one.merged.map((id) => titles.get(id) ?? id.split("-")[0]);
      button.setAttribute("aria-pressed", String(one.id === chosen));
      button.title = `${one.service} ${one.instance}`.trim();
      fill(button, sign(one.id), el("b", {}, titles.get(one.id) ?? one.number), el("span", { class: `pill ${one.state}` }, one.state),
        el("span", { class: "num" }, `${count(one.size)} ${one.size === 1 ? "key" : "keys"}`),
        el("span", { class: "when num" }, one.until === null ? `since ${moment(one.since)}` : stretch(Math.min(one.since, one.until), one.until)),
        took.length ? el("span", { class: "absorbed" }, `took in ${took.join(", ")}`) : null);
    });
  }
}
