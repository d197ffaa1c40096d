// The nodes of the grid: from the server's rows to what is drawn. Pure.

import { FLAGS, REPORTS, STATES, placeOf } from "./signs.js";
import { byName } from "./text.js";

const UNHEALTHY = placeOf("unhealthy");
const UNKNOWN = placeOf("unknown");
const FREE = placeOf("free");

/**
 * A row is `[name, status, [numa, count of each state…]…]`: how fresh the report is, and flags above it; counts that are 0 at the end are left out, and numa is -1 for
 * devices that are on no NUMA node.
 */
export function nodeOf([name, status, ...zones]) {
  const counts = new Array(STATES.length).fill(0);
  const parts = zones.map(([numa, ...given]) => {
    const own = STATES.map((_, place) => given[place] ?? 0);
    own.forEach((count, place) => (counts[place] += count));
    return { numa, counts: own, devices: sum(own) };
  });
  return { name, lower: name.toLowerCase(), report: status & 7, flags: status & ~7, zones: parts, counts, devices: sum(counts) };
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
  free: (one, other) => other.counts[FREE] - one.counts[FREE],
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
  return node.devices === 0 ? 0 : 1 - node.counts[FREE] / node.devices;
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
  return `${node.name}: ${devices}${report}`;
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

/** Columns, rows and height that so many tiles of a size take in a width. */
export function layout(count, size, width) {
  const { width: wide, height: high, gap } = SIZES[size];
  const columns = Math.max(1, Math.floor((width - gap) / (wide + gap)));
  const rows = Math.ceil(count / columns);
  return { columns, rows, height: rows * (high + gap) + gap };
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
