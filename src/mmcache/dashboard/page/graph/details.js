/** One key of the graph: what its score is made of, where it is, how long it will stay hot, with whom it is used. */
import { assign, el, fill, icon } from "../dom.js";
import { bytes, count, duration, named, percent, short } from "../format.js";
import { address, current } from "../state.js";
import { sign } from "./looks.js";

/** @typedef {import("./stage.js").Node} Node @typedef {import("./layout.js").Edge} Edge */
const BESIDE = 5;

/** @param {number} value */
export const amount = (value) => (Math.abs(value) >= 1000 ? count(value) : String(Number(value.toPrecision(3))));

/** @param {Node} node */
export function life(node) {
  if (node.expected_hours === null) return "nobody says";
  const sure = node.confidence === null ? "" : `, ${percent(node.confidence)} sure`;
  return `${duration(node.expected_hours * 3600)}${sure}`;
}

export class Details {
  /** @param {{choose: (key: string) => void, filter: (key: string) => void}} owner */
  constructor(owner) {
    this.owner = owner;
    this.root = el("section", { class: "hotkey", hidden: true, "aria-label": "The chosen key" });
    this.drawn = "";
  }

  /** @param {Node | undefined} node @param {Node[]} nodes @param {Edge[]} edges @param {string} community its title */
  show(node, nodes, edges, community) {
    this.root.hidden = !node;
    if (!node) {
      this.drawn = "";
      return;
    }
    const drawn = JSON.stringify([node, edges.length, community, address(current())]);
    if (drawn === this.drawn) return; // what has the focus keeps it, whatever ticks
    const focused = this.root.contains(document.activeElement) ? document.activeElement?.getAttribute("data-name") : null;
    this.drawn = drawn;
    const at = nodes.indexOf(node);
    const close = el("button", { type: "button", class: "ghost tiny", "aria-label": "Close the key", "data-name": "close" }, icon("close"));
    close.addEventListener("click", () => this.owner.choose(""));
    const state = current();
    const keys = [...new Set([...(state.filters.key ?? []), node.key])];
    const link = el("a", { href: address({ ...state, filters: { ...state.filters, key: keys } }), "data-name": "requests" }, "Requests of this key");
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.owner.filter(node.key);
    });
    const largest = Math.max(1e-9, ...Object.values(node.parts).map(Math.abs));
    const parts = Object.entries(node.parts).map(([name, value]) => {
      const bar = el("i", { class: value < 0 ? "minus" : "" });
      bar.style.width = `${(Math.abs(value) / largest) * 100}%`;
      return el("li", {}, el("span", { title: name }, name), el("span", { class: "partbar", "aria-hidden": "true" }, bar), el("b", { class: "num" }, amount(value)));
    });
    /** @type {[string, string][]} */
    const facts = [
      ["tenant", named(node.tenant)], ["modality", named(node.modality)], ["heat", amount(node.heat)],
      ["tier", node.tier || "in none"], ["size", bytes(node.bytes)], ["stays hot", life(node)],
    ];
    if (node.instances > 1) facts.push(["processes", String(node.instances)]);
    fill(this.root,
      el("header", {}, el("h3", { class: "mono" }, node.key), close),
      el("p", { class: "whose" }, sign(node.community), `${at + 1}. of ${nodes.length}, ${node.community === null ? "in no community" : `community ${community}`}`),
      el("p", { class: "score" }, "score ", el("b", { class: "num" }, amount(node.score))),
      parts.length ? el("ul", { class: "parts", "aria-label": "Parts of the score" }, parts) : null,
      el("dl", {}, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { title: value }, value)))),
      this.others("then", nodes, edges.filter((e) => e.source === at && e.target !== at).map((e) => [e.target, e.weight])),
      this.others("before it", nodes, edges.filter((e) => e.target === at && e.source !== at).map((e) => [e.source, e.weight])),
      el("p", {}, link));
    if (focused) /** @type {HTMLElement | null} */ ([...this.root.querySelectorAll("[data-name]")].find((one) => one.getAttribute("data-name") === focused))?.focus();
  }

  /** Keys used after or before it, the most often used first. @param {string} word @param {Node[]} nodes @param {number[][]} ends */
  others(word, nodes, ends) {
    if (!ends.length) return null;
    const first = ends.sort((a, b) => b[1] - a[1]).slice(0, BESIDE);
    return el("p", { class: "others" }, el("span", {}, word), first.map(([i, weight]) => {
      const button = el("button", { type: "button", class: "mono" });
      assign(button, { title: `${nodes[i].key}, weight ${amount(weight)}`, "data-name": `${word} ${nodes[i].key}` });
      button.textContent = short(nodes[i].key, 9);
      button.addEventListener("click", () => this.owner.choose(nodes[i].key));
      return button;
    }), ends.length > BESIDE ? el("span", {}, `and ${ends.length - BESIDE} more`) : null);
  }
}
