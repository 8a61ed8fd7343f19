/** Numbers, sizes and times as people read them. */

const PLAIN = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** @param {number} value */
export const count = (value) => (Math.abs(value) < 100_000 ? PLAIN.format(value) : SHORT.format(value));

/** @param {number | null | undefined} value 0…1 */
export function percent(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const hundred = value * 100;
  if (hundred > 0 && hundred < 0.05) return "<0.1 %";
  if (hundred > 99 && hundred < 100) return `${(Math.floor(hundred * 10) / 10).toFixed(1)} %`; // 100 is said of all alone
  return `${hundred.toFixed(hundred > 0 && hundred < 9.95 ? 1 : 0)} %`;
}

/** @param {number} value */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let rest = Math.abs(value);
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${value < 0 ? "-" : ""}${rest >= 100 || unit === 0 ? rest.toFixed(0) : rest.toFixed(1)} ${units[unit]}`;
}

/** @param {number} seconds */
export function duration(seconds) {
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (size < 1) return `${(seconds * 1e3).toFixed(size < 0.01 ? 2 : size < 0.1 ? 1 : 0)} ms`;
  if (size < 120) return `${seconds.toFixed(size < 10 ? 2 : 1)} s`;
  if (size < 7200) return `${(seconds / 60).toFixed(size < 600 ? 1 : 0)} min`;
  if (size < 172_800) return `${(seconds / 3600).toFixed(1)} h`;
  return size < 86_400_000 ? `${(seconds / 86_400).toFixed(1)} d` : `${count(seconds / 86_400)} d`;
}

/** @param {number} value @param {string} currency */
export function money(value, currency) {
  try {
    const fine = value > 0 && value < 1 ? { maximumSignificantDigits: 2 } : Math.abs(value) >= 1e5 ? /** @type {const} */ ({ notation: "compact", maximumFractionDigits: 1 }) : {};
    return new Intl.NumberFormat("en", { style: "currency", currency: currency || "USD", ...fine }).format(value);
  } catch {
    return `${value.toFixed(2)} ${currency}`;
  }
}

let utc = readZone();

function readZone() {
  try {
    return localStorage.getItem("mmcache.zone") === "utc";
  } catch {
    return false;
  }
}

export const usesUtc = () => utc;

/** @param {boolean} on */
export function useUtc(on) {
  utc = on;
  formats.clear();
  try {
    localStorage.setItem("mmcache.zone", on ? "utc" : "local");
  } catch {
    // It holds until the page is left.
  }
}

/** @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();

/** @param {string} name @param {Intl.DateTimeFormatOptions} options @param {number} seconds */
function format(name, options, seconds) {
  let made = formats.get(name);
  if (!made) {
    made = new Intl.DateTimeFormat("en-GB", { ...options, hourCycle: "h23", timeZone: utc ? "UTC" : undefined });
    formats.set(name, made);
  }
  return made.format(seconds * 1000);
}

/** `02:15` @param {number} at Unix seconds */
export const clock = (at) => format("clock", { hour: "2-digit", minute: "2-digit" }, at);

/** `02:15:09` @param {number} at Unix seconds */
export const clockSeconds = (at) =>
  format("seconds", { hour: "2-digit", minute: "2-digit", second: "2-digit" }, at);

/** `30 Nov` @param {number} at Unix seconds */
export const day = (at) => format("day", { day: "numeric", month: "short" }, at);

let looked = Date.now() / 1000;

/** The time on the charts: its day need not be said again. @param {number} at Unix seconds */
export const lookAt = (at) => (looked = at);

/** `02:15`, with the day in front where it is not the charts'. @param {number} at Unix seconds */
export const moment = (at) => (day(at) === day(looked) ? clock(at) : `${day(at)}, ${clock(at)}`);

/** A stretch of time: `02:10–02:20`. @param {number} from @param {number} to Unix seconds @param {boolean} [dated] */
export function stretch(from, to, dated = day(from) !== day(looked)) {
  const fine = to - from < 600 && (from % 60 || to % 60) ? clockSeconds : clock;
  const first = dated ? `${day(from)}, ${fine(from)}` : fine(from);
  return `${first}–${day(from) === day(to) ? "" : `${day(to)}, `}${fine(to)}`;
}

/** Seconds that local time is ahead of UTC. @param {number} at Unix seconds */
export const offset = (at) => (utc ? 0 : -new Date(at * 1000).getTimezoneOffset() * 60);

/** The server's sentences say times as `02:15:00 UTC`; here they are as the page's others are. @param {string} text */
export function zoned(text) {
  const ahead = offset(looked);
  if (utc) return text;
  return String(text).replace(/\b([01]\d|2[0-3]):([0-5]\d):([0-5]\d) UTC\b/g, (_, hours, minutes, seconds) => {
    const at = (((hours * 3600 + minutes * 60 + Number(seconds) + ahead) % 86_400) + 86_400) % 86_400;
    return new Date(at * 1000).toISOString().slice(11, 19);
  });
}

/** What stands for a value that was not said. @param {unknown} name */
export const named = (name) => (name === "" || name === null || name === undefined ? "(none)" : String(name));

/** @param {string} text @param {number} length */
export const short = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
