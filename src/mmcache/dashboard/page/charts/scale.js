/** Where a value stands, and which values are worth a line. */
import { clock, clockSeconds, day, offset } from "../format.js";

/** @param {number} from @param {number} to @param {number} start pixel @param {number} end pixel */
export function linear(from, to, start, end) {
  const span = to - from || 1;
  return (/** @type {number} */ value) => start + ((value - from) / span) * (end - start);
}

/** Round values from 0 to at least `most`. @param {number} most @param {number} about how many lines */
export function roundTicks(most, about = 4) {
  if (!(most > 0)) return [0, 1];
  const raw = most / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw * 0.999) ?? 10 * power;
  const ticks = [];
  for (let value = 0; value < most + step * 0.999; value += step) ticks.push(Number(value.toPrecision(12)));
  return ticks;
}

/** Of whole things: no line lies between two of them. @param {number} most */
export const countTicks = (most) => [...new Set(roundTicks(most).map(Math.ceil))];

/** Round sizes in bytes, in powers of two. @param {number} most @param {number} about */
export function byteTicks(most, about = 4) {
  if (!(most > 0)) return [0, 1024];
  const step = 2 ** Math.ceil(Math.log2(most / about));
  const ticks = [];
  for (let value = 0; value < most + step * 0.999; value += step) ticks.push(value);
  return ticks;
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];

/**
 * Times on the clock's round hours and minutes, as many as have room.
 * @param {number} from @param {number} to @param {number} width pixels
 * @returns {{at: number, text: string}[]}
 */
export function timeTicks(from, to, width) {
  const most = Math.max(2, Math.floor(width / 76));
  const step = TIME_STEPS.find((s) => (to - from) / s <= most) ?? Math.ceil((to - from) / most / 86_400) * 86_400;
  const ahead = offset(to);
  const ticks = [];
  for (let at = Math.ceil((from + ahead) / step) * step - ahead; at <= to; at += step) {
    const midnight = (at + ahead) % 86_400 === 0;
    ticks.push({ at, text: midnight ? day(at) : step < 60 ? clockSeconds(at) : clock(at) });
  }
  return ticks;
}

/**
 * A line through what is known; where nothing is, it breaks. A lone value becomes a dot (a line of no length, round caps).
 * @param {(number | null)[]} values @param {(i: number) => number} x @param {(v: number) => number} y
 */
export function linePath(values, x, y) {
  let path = "";
  let pen = false;
  values.forEach((value, i) => {
    if (value === null || value === undefined) {
      pen = false;
      return;
    }
    const point = `${x(i).toFixed(1)},${y(value).toFixed(1)}`;
    const alone = !pen && (values[i + 1] === null || values[i + 1] === undefined);
    path += pen ? `L${point}` : `M${point}${alone ? "h.01" : ""}`;
    pen = true;
  });
  return path;
}

/** The area between two lines. @param {number[]} lower @param {number[]} upper @param {(i: number) => number} x @param {(v: number) => number} y */
export function areaPath(lower, upper, x, y) {
  if (!upper.length) return "";
  const there = upper.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`);
  const back = lower.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).reverse();
  return `M${there.join("L")}L${back.join("L")}Z`;
}
