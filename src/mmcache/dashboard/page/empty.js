/** What is shown where there is nothing to show: how to send data, or where the data are. */
import { el, fill } from "./dom.js";
import { stretch } from "./format.js";
import { change } from "./state.js";

/** @param {string} text */
function command(text) {
  const copy = el("button", { type: "button", class: "small" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      getSelection()?.selectAllChildren(code);
      copy.textContent = "Selected";
    }
  });
  const code = el("code", {}, text);
  return el("div", { class: "command" }, el("pre", {}, code), copy);
}

/** A server that listens at every address is reached by the name the page was. @param {string} [otlp] */
export function receiver(otlp) {
  try {
    const there = new URL(otlp ?? location.origin);
    if (there.protocol !== "http:" && there.protocol !== "https:") return location.origin;
    if (["0.0.0.0", "[::]"].includes(there.hostname)) there.hostname = location.hostname;
    return there.origin;
  } catch {
    return location.origin;
  }
}

export class Empty {
  constructor() {
    this.root = el("section", { class: "empty", hidden: true, "aria-label": "No data" });
    this.kind = "";
  }

  /** No span was ever received. @param {string} [otlp] where the server takes them; none: where the page came from */
  welcome(otlp) {
    if (this.kind === "welcome") return;
    this.kind = "welcome";
    const to = receiver(otlp);
    fill(this.root, el("h2", {}, "Nothing has come yet"),
      el("p", {}, "This page takes OpenTelemetry spans and metrics by OTLP over HTTP. Send them from the proxy:"),
      command(`mmcache serve --upstream http://127.0.0.1:8000 --otlp ${to}`),
      el("p", {}, "or from a program that uses the library:"),
      command(`from mmcache.telemetry import instrument\ninstrument(cache, otlp="${to}")`),
      el("p", { class: "wait" }, el("i", { class: "dot" }), "Waiting; the charts appear with the first span."));
    this.root.hidden = false;
  }

  /** There are spans, and none in the time that is shown. @param {{from: number, to: number}} kept */
  elsewhere(kept) {
    this.kept = kept;
    const said = `What is kept lies in ${stretch(kept.from, kept.to, true)}.`;
    if (this.kind === "elsewhere") {
      if (this.words && this.words.textContent !== said) this.words.textContent = said;
      return;
    }
    this.kind = "elsewhere";
    this.words = el("p", {}, said);
    const go = el("button", { type: "button", class: "primary" }, "Show the newest hour that has some");
    go.addEventListener("click", () => {
      const { from, to } = this.kept ?? kept;
      change({ range: "custom", from: Math.floor(Math.max(from, to - 3600)), to: Math.ceil(to), picked: null }, { zoom: true });
    });
    fill(this.root, el("h2", {}, "Nothing in this time"), this.words, go);
    this.root.hidden = false;
  }

  hide() {
    this.kind = "";
    this.root.hidden = true;
  }
}
