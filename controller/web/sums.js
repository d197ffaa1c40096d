// Sums beside the grid: the legend, which counts, and tables by class and by namespace.

import { bar, byId, el, plain } from "./dom.js";
import { FLAGS, REPORTS, STATES } from "./signs.js";
import { amountCounts, amountShown, grouped, percent, shareTaken } from "./text.js";

/** Rows of a table; the rest is counted. */
const MOST_ROWS = 40;

/** The legend: what each colour and sign means, how often it is there; pressing one dims all nodes without it. */
export function drawLegend({ counts, amounts, statuses, pressed, onPress }) {
  const states = STATES.map((state, place) => ({ key: `state:${state.key}`, look: state.key, count: counts[place], ...pick(state) }));
  const reports = REPORTS.slice(1).map((report) => ({ key: `report:${report.key}`, look: `report-${report.key}`, count: statuses.get(report.key), ...pick(report) }));
  const flags = FLAGS.map((flag) => ({ key: flag.key, look: "flag", count: statuses.get(flag.key), ...pick(flag) }));
  const nodes = [...reports, ...flags].filter((entry) => entry.count > 0 || pressed.has(entry.key));
  const active = document.activeElement?.dataset?.legend;
  const counted = states.filter((entry) => entry.look !== "others" || entry.count > 0);
  const drawn = (entry) => entryOf(entry, pressed.has(entry.key), onPress);
  byId("legend").replaceChildren(...counted.map(drawn));
  byId("legend-nodes").replaceChildren(...nodes.map(drawn));
  if (active !== undefined) document.querySelector(`[data-legend="${active}"]`)?.focus();
  const devices = counts.reduce((sum, count) => sum + count, 0);
  byId("devices").textContent = `${grouped(devices)} devices`;
  const words = STATES.map((state, place) => `${grouped(counts[place])} ${state.word}`).join(", ");
  const total = bar(STATES.map((state, place) => [state.key, amounts[place]]), words);
  byId("total").replaceChildren(total);
}

const pick = ({ word, hint }) => ({ word, hint });

function entryOf({ key, look, word, hint, count }, isPressed, onPress) {
  const press = () => onPress(key);
  return el("li", {}, el("button", { type: "button", class: "entry", title: hint, "aria-pressed": String(isPressed), data: { legend: key }, on: { click: press } },
    el("span", { class: `swatch ${look}`, "aria-hidden": "true" }), el("span", { class: "word" }, word), el("span", { class: "number" }, grouped(count))));
}

/** What there is of each class and namespace; a name is a filter. */
export function drawTables({ classes, namespaces, filter, onPick }) {
  const parts = { classes: rows(classes, "class", filter, onPick), namespaces: namespaces && rows(namespaces, "namespace", filter, onPick) };
  for (const [name, drawn] of Object.entries(parts)) if (drawn) byId(`${name}-body`).replaceChildren(...drawn);
}

/** Names of what rows are about; what has none is left to the sums. */
export const namesOf = (answer, by) => answer.rows.map((row) => row[by]).filter((name) => name !== undefined);

function rows(answer, by, filter, onPick) {
  const named = answer.rows.filter((row) => row[by] !== undefined);
  const drawn = named.slice(0, MOST_ROWS).map((row) => rowOf(row, by, filter[by], onPick));
  const more = named.length - MOST_ROWS;
  return more > 0 ? [...drawn, el("li", { class: "muted" }, `and ${grouped(more)} more`)] : drawn;
}

function rowOf(row, by, chosen, onPick) {
  const isChosen = row[by] === chosen;
  // Of devices that are shared, what is taken counts, and not only which are taken as a whole.
  const parts = Math.min(row.free, Math.max(0, row.capacity * shareTaken(row.amounts) - row.allocated));
  const moved = { allocated: parts, free: -parts };
  const shares = STATES.map((state) => [state.key, (row[state.key] ?? 0) + (moved[state.key] ?? 0)]);
  const isWhole = by === "class";
  const figure = isWhole ? `${grouped(row.free)} of ${grouped(row.capacity)} free` : grouped(row.capacity);
  const press = () => onPick(by, isChosen ? "" : row[by]);
  return el("li", {}, el("button", { type: "button", class: "row", "aria-pressed": String(isChosen), on: { click: press } },
    el("span", { class: "word", title: plain(row[by]) }, plain(row[by])),
    isWhole && bar(shares, `${percent(row.free - parts, row.capacity)} free`), el("span", { class: "number" }, figure),
    Object.entries(row.amounts ?? {}).map(([name, counts]) => el("span", { class: "number amounts" }, amountWords(name, counts, isWhole)))));
}

/** `cpus 1,249 of 10,000 free`. */
function amountWords(name, counts, isWhole) {
  const { capacity, allocated, free } = amountCounts(counts);
  const shown = (amount) => amountShown(amount, name);
  return plain(isWhole ? `${name}: ${shown(free)} of ${shown(capacity)} free` : `${name}: ${shown(allocated)}`);
}
