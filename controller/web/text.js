// Words out of numbers. Pure.

const SUFFIXES = [
  ["Ki", 2 ** 10], ["Mi", 2 ** 20], ["Gi", 2 ** 30], ["Ti", 2 ** 40], ["Pi", 2 ** 50], ["Ei", 2 ** 60],
  ["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12], ["P", 1e15], ["E", 1e18],
  ["n", 1e-9], ["u", 1e-6], ["m", 1e-3],
];

/** `1 node`, `5,000 nodes`. */
export function counted(number, word) {
  return `${grouped(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** `500,000`. */
export function grouped(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** A share of a whole; what is there at all is not 0 %, and what is missing at all leaves no 100 %. */
export function percent(part, whole) {
  if (whole <= 0 || part <= 0) return "0 %";
  if (part >= whole) return "100 %";
  return `${Math.min(99, Math.max(1, Math.round((100 * part) / whole)))} %`;
}

/** `12 s`, `5 min`, `3 h`, `2 d`. */
export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** Counts of an amount as the API writes them: it leaves out what is nothing. */
export function amountCounts({ capacity, allocated = "0", free = "0" }) {
  return { capacity, allocated, free };
}

/** The greatest share that is taken of any of these amounts, from 0 to 1. */
export function shareTaken(amounts = {}) {
  const shares = Object.values(amounts).map(amountCounts).map(({ capacity, allocated }) => amountOf(allocated) / amountOf(capacity));
  return Math.min(1, Math.max(0, ...shares.filter(Number.isFinite)));
}

/** The number that a quantity of Kubernetes stands for: `16`, `1.5Gi`, `500m`; NaN for what is none. */
export function amountOf(quantity) {
  const text = String(quantity);
  const found = SUFFIXES.find(([suffix]) => text.endsWith(suffix));
  const digits = found ? text.slice(0, -found[0].length) : text;
  return digits === "" ? NaN : Number(digits) * (found ? found[1] : 1);
}

/** `16`, `46 GiB`: sizes as people say them. A quantity with a binary suffix, or a large one called memory, is one. */
export function amountShown(quantity, name = "") {
  const value = amountOf(quantity);
  if (Number.isNaN(value)) return String(quantity);
  const isSize = /[KMGTPE]i$/.test(quantity) || (/memory|size|storage/i.test(name) && value >= 2 ** 20);
  return isSize ? sizeShown(value) : grouped(quantity);
}

/** `512 MiB`, `1.5 TiB`. */
export function sizeShown(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let [value, unit] = [bytes, 0];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  const rounded = value >= 100 || Number.isInteger(value) ? Math.round(value) : Math.round(value * 10) / 10;
  return `${rounded} ${units[unit]}`;
}

/** Beginning and end of a text that is too long: names of one cluster often begin alike, so the end has the larger half. */
export function cut(text, most) {
  if (text.length <= most) return text;
  const kept = Math.max(0, most - 1);
  const end = Math.ceil(kept / 2);
  return `${text.slice(0, kept - end)}…${end > 0 ? text.slice(-end) : ""}`;
}

/** What all of these names end with from a dot on, such as `.eu-central-1.compute.internal`; empty where that is nothing. */
export function sharedDomain(names) {
  if (names.length < 2) return "";
  const [first] = names;
  let dot = first.indexOf(".");
  while (dot > 0 && !names.every((name) => name.length > first.length - dot && name.endsWith(first.slice(dot)))) dot = first.indexOf(".", dot + 1);
  return dot > 0 ? first.slice(dot) : "";
}

const ORDER = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Names as people order them: node-2 before node-10. */
export const byName = (one, other) => ORDER.compare(one, other);
