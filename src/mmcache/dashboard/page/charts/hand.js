/**
 * Pointer and keyboard on a chart of time: point, click, drag; arrows, Enter, Z.
 * @typedef {object} Handled
 * @property {HTMLElement} plot takes focus
 * @property {() => number} size buckets
 * @property {(x: number) => number} bucketAt of a pixel from the plot's left
 * @property {(i: number | null) => void} pointAt
 * @property {() => number | null} pointed
 * @property {(range: [number, number] | null) => void} brush first and last bucket
 * @property {(range: [number, number]) => void} pick
 * @property {(range: [number, number]) => void} zoom
 * @property {() => number | null} deepest the bucket worth a look
 */
const DRAG = 5;

/** @param {Handled} chart */
export function handle(chart) {
  const { plot } = chart;
  /** @type {{x: number, i: number, moved: boolean} | null} */
  let held = null;
  /** @type {[number, number] | null} from the keyboard: where Shift began, where it is */
  let marked = null;
  const sorted = (/** @type {[number, number]} */ r) => /** @type {[number, number]} */ (r[0] <= r[1] ? r : [r[1], r[0]]);
  const at = (/** @type {PointerEvent} */ event) => chart.bucketAt(event.clientX - plot.getBoundingClientRect().left);

  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !chart.size()) return;
    held = { x: event.clientX, i: at(event), moved: false };
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    if (!chart.size()) return;
    const i = at(event);
    chart.pointAt(i);
    if (!held) return;
    held.moved ||= Math.abs(event.clientX - held.x) > DRAG;
    if (held.moved) chart.brush(sorted([held.i, i]));
  });
  plot.addEventListener("pointerup", (event) => {
    if (!held) return;
    const range = sorted([held.i, held.moved ? at(event) : held.i]);
    const dragged = held.moved;
    held = null;
    chart.brush(null);
    if (dragged && !event.shiftKey) chart.zoom(range);
    else chart.pick(range);
  });
  plot.addEventListener("pointercancel", () => {
    held = null;
    chart.brush(null);
  });
  plot.addEventListener("pointerleave", () => {
    if (!held) chart.pointAt(null);
  });
  plot.addEventListener("blur", () => {
    marked = null;
    chart.brush(null);
    chart.pointAt(null);
  });

  plot.addEventListener("keydown", (event) => {
    const last = chart.size() - 1;
    if (last < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const here = chart.pointed();
    /** @type {Record<string, () => number | null>} */
    const moves = {
      ArrowLeft: () => (here ?? last + 1) - 1,
      ArrowRight: () => (here ?? last - 1) + 1,
      PageUp: () => (here ?? last) - 10,
      PageDown: () => (here ?? last) + 10,
      Home: () => 0,
      End: () => last,
      d: () => chart.deepest(),
    };
    const move = moves[event.key];
    if (move) {
      const i = Math.min(last, Math.max(0, move() ?? here ?? last));
      marked = event.shiftKey ? [marked?.[0] ?? here ?? i, i] : null;
      chart.pointAt(i);
      chart.brush(marked && sorted(marked));
    } else if (event.key === "Enter" && here !== null) {
      chart.pick(marked ? sorted(marked) : [here, here]);
    } else if (event.key === "z" && here !== null) {
      chart.zoom(marked ? sorted(marked) : [Math.max(0, here - 10), Math.min(last, here + 10)]);
      marked = null;
      chart.brush(null);
    } else if (event.key === "Escape" && marked) {
      marked = null;
      chart.brush(null);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
