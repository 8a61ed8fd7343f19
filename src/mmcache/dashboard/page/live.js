/**
 * Server-sent ticks: something came, ask again. Not in a hidden tab; and after the server was away, it is found again.
 * @typedef {"live" | "waiting" | "lost" | "hidden"} Health
 */
const AGAIN_AFTER = [1000, 2000, 5000, 10_000];

export class Live {
  /** @param {{tick: (data: any) => void, graph: () => void, health: (health: Health) => void, back: () => void}} owner */
  constructor(owner) {
    this.owner = owner;
    /** @type {EventSource | null} */
    this.source = null;
    this.failures = 0;
    this.wasLost = false;
    /** @type {number | undefined} */
    this.timer = undefined;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.start(true)));
    window.addEventListener("pagehide", () => this.stop());
    window.addEventListener("pageshow", (event) => event.persisted && this.start(true));
  }

  /** @param {boolean} [missed] ticks may have been missed */
  start(missed = false) {
    if (this.source || document.hidden) return;
    clearTimeout(this.timer);
    const source = new EventSource("/api/v1/live");
    this.source = source;
    this.owner.health("waiting");
    source.addEventListener("open", () => {
      this.failures = 0;
      this.owner.health("live");
      if (this.wasLost) this.owner.back();
      this.wasLost = false;
    });
    source.addEventListener("tick", (event) => {
      try {
        this.owner.tick(JSON.parse(event.data));
      } catch {
        this.owner.tick({});
      }
    });
    source.addEventListener("graph", () => this.owner.graph());
    source.addEventListener("error", () => {
      this.wasLost = true;
      this.owner.health("lost");
      source.close();
      if (this.source !== source) return;
      this.source = null;
      this.timer = setTimeout(() => this.start(), AGAIN_AFTER[Math.min(this.failures, AGAIN_AFTER.length - 1)]);
      this.failures += 1;
    });
    if (missed) this.owner.back();
  }

  stop() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
    this.owner.health("hidden");
  }
}
