// The nodes of the grid: from the server's rows to what is drawn. Pure.

import { FLAGS, REPORTS, STATES, placeOf } from "./signs.js";
import { byName, grouped } from "./text.js";

const ALLOCATED = placeOf("allocated");
const OTHERS = placeOf("others");
const UNHEALTHY = placeOf("unhealthy");
const UNKNOWN = placeOf("unknown");
const FREE = placeOf("free");

/**
 * A row is `[name, status, [numa, count of each state…, parts]…]`: how fresh the report is, and flags above it; counts that are 0 at the end are left out, and numa is -1
 * for devices that are on no NUMA node. Parts are what is taken of shared devices beside those that count as allocated, in thousandths of a device.
 */
export function nodeOf([name, status, ...zones]) {
  const counts = new Array(STATES.length).fill(0);
  let parts = 0;
  const shown = zones.map(([numa, ...given]) => {
    const own = STATES.map((_, place) => given[place] ?? 0);
    own.forEach((count, place) => (counts[place] += count));
    const taken = (given[STATES.length] ?? 0) / 1000;
    parts += taken;
    return { numa, counts: own, amounts: byAmount(own, taken), devices: sum(own) };
  });
  return { name, lower: name.toLowerCase(), report: status & 7, flags: status & ~7, zones: shown, counts, amounts: byAmount(counts, parts), parts, devices: sum(counts) };
}

/** Counts of states as they are drawn: of a shared device counts what is taken of it. Less than whole devices say where only a namespace is shown. */
function byAmount(counts, parts) {
  const amounts = [...counts];
  amounts[ALLOCATED] += parts;
  amounts[parts < 0 ? OTHERS : FREE] -= parts;
  return amounts;
}

/** All nodes of an answer, by name. */
export function nodesOf(rows) {
  return new Map(rows.map((row) => [row[0], nodeOf(row)]));
}

/** Takes changed rows over, and lets go of nodes that are gone. Gives whether nodes came or went. */
export function merge(nodes, rows, gone) {
  const before = nodes.size;
  const came = rows.some(([name]) => !nodes.has(name));
  for (const row of rows) nodes.set(row[0], nodeOf(row));
  for (const name of gone) nodes.delete(name);
  return came || nodes.size !== before;
}

/** Devices of all nodes, by state. */
export function totals(nodes) {
  const counts = new Array(STATES.length).fill(0);
  for (const node of nodes) node.counts.forEach((count, place) => (counts[place] += count));
  return counts;
}

/** The same by amounts: of a shared device counts what is taken of it. */
export function amountTotals(nodes) {
  const amounts = new Array(STATES.length).fill(0);
  for (const node of nodes) node.amounts.forEach((amount, place) => (amounts[place] += amount));
  return amounts;
}

/** Nodes by what is said of them: a key with how many. */
export function statuses(nodes) {
  const counts = new Map([...REPORTS, ...FLAGS].map(({ key }) => [key, 0]));
  const add = (key) => counts.set(key, counts.get(key) + 1);
  for (const node of nodes) {
    add(REPORTS[node.report].key);
    for (const flag of FLAGS) if (node.flags & flag.bit) add(flag.key);
  }
  return counts;
}

/** Whether a node has a state among its devices, or a status itself. */
export function hasKey(node, key) {
  const flag = FLAGS.find((known) => known.key === key);
  if (flag) return (node.flags & flag.bit) !== 0;
  const [kind, name] = key.split(":");
  return kind === "report" ? REPORTS[node.report].key === name : node.counts[placeOf(name)] > 0;
}

const ORDERS = {
  name: () => 0,
  free: (one, other) => other.amounts[FREE] - one.amounts[FREE],
  busy: (one, other) => shareTaken(other) - shareTaken(one),
  trouble: (one, other) => trouble(other) - trouble(one),
};

/** The nodes whose name has `needle` in it, in an order of `ORDERS`; equal ones by name. */
export function shown(nodes, needle, order) {
  const wanted = needle.trim().toLowerCase();
  const found = [...nodes].filter((node) => node.lower.includes(wanted));
  const compare = ORDERS[order] ?? ORDERS.name;
  return found.sort((one, other) => compare(one, other) || byName(one.name, other.name));
}

/** How much of a node nobody can have, from 0 to 1. */
function shareTaken(node) {
  return node.devices === 0 ? 0 : 1 - node.amounts[FREE] / node.devices;
}

/** What somebody should look at comes first: what does not work, then what does not report. */
function trouble(node) {
  return node.counts[UNHEALTHY] * 1000 + node.counts[UNKNOWN] + [0, 100, 500, 0, 300][node.report] + (node.flags & 8 ? 200 : 0);
}

/** What a node is like, in a sentence: for screen readers and for whoever points at it. */
export function described(node) {
  const counts = STATES.map((state, place) => [node.counts[place], state.word]).filter(([count]) => count > 0);
  const parts = counts.map(([count, word]) => `${count} ${word}`);
  const said = [REPORTS[node.report], ...FLAGS.filter(({ bit }) => node.flags & bit)];
  const report = said.filter(({ key }) => key !== "fresh").map(({ word }) => `; ${word}`).join("");
  const devices = node.devices === 0 ? "no devices" : `${parts.join(", ")} of ${node.devices} devices`;
  const shared = node.parts > 0 ? `; parts of free ones are taken, worth ${amountWords(node.parts)} of a device` : "";
  return `${node.name}: ${devices}${shared}${report}`;
}

/** What is said on a tile. */
export function tileWords({ counts, amounts, devices }) {
  if (devices === 0) return "no devices";
  if (counts[OTHERS] > 0) return `${grouped(devices - counts[OTHERS])} of ${grouped(devices)}`;
  return `${amountWords(amounts[FREE])} of ${grouped(devices)} free`;
}

/** `7`, `7.5`: what is missing at all is never rounded away. */
function amountWords(amount) {
  const nearly = amount + 1e-9;
  return Number.isInteger(Math.round(nearly * 1000) / 1000) ? grouped(Math.round(amount)) : (Math.max(0.1, Math.floor(nearly * 10) / 10)).toFixed(1);
}

/** How large tiles can be: width and height, how much is written on them, and the gap between them. */
export const SIZES = [
  { width: 13, height: 13, gap: 2, detail: 0 },
  { width: 18, height: 18, gap: 2, detail: 0 },
  { width: 30, height: 28, gap: 3, detail: 1 },
  { width: 72, height: 46, gap: 5, detail: 2 },
  { width: 132, height: 82, gap: 8, detail: 3 },
  { width: 208, height: 128, gap: 12, detail: 3 },
];

/** Columns, rows and height that so many tiles of a size take in a width, which they fill: a tile is as wide as its column. */
export function layout(count, size, width) {
  const { width: wide, height: high, gap } = SIZES[size];
  const columns = Math.max(1, Math.floor((width - gap) / (wide + gap)));
  const rows = Math.ceil(count / columns);
  const tile = Math.max(Math.min(wide, width - 2 * gap), (width - gap) / columns - gap);
  return { columns, rows, tile, height: rows * (high + gap) + gap };
}

/** The largest size at which all tiles are seen at once; the second smallest where none is. */
export function fittingSize(count, width, height) {
  for (let size = SIZES.length - 1; size > 1; size -= 1) {
    if (layout(count, size, width).height <= height) return size;
  }
  return 1;
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}
