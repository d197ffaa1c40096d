// Sums beside the grid: the legend, which counts, and tables by class and by namespace.

import { bar, byId, el, plain } from "./dom.js";
import { REPORTS, STATES } from "./signs.js";
import { grouped, percent } from "./text.js";

/** Rows of a table; the rest is counted. */
const MOST_ROWS = 40;

/** The legend: what each colour and sign means, how often it is there; pressing one dims all nodes without it. */
export function drawLegend({ counts, reports, pressed, onPress }) {
  const states = STATES.map((state, place) => ({ key: String(place), look: state.key, count: counts[place], ...pick(state) }));
  const nodes = REPORTS.map((report, place) => ({ key: `report-${report.key}`, look: `report-${report.key}`, count: reports[place], ...pick(report) }))
    .filter((entry, place) => place > 0 && (entry.count > 0 || pressed.has(entry.key)));
  const active = document.activeElement?.dataset?.legend;
  const drawn = (entry) => entryOf(entry, pressed.has(entry.key), onPress);
  byId("legend").replaceChildren(...states.map(drawn));
  byId("legend-nodes").replaceChildren(...nodes.map(drawn));
  if (active !== undefined) document.querySelector(`[data-legend="${active}"]`)?.focus();
  const devices = counts.reduce((sum, count) => sum + count, 0);
  byId("devices").textContent = `${grouped(devices)} devices`;
  const words = STATES.map((state, place) => `${grouped(counts[place])} ${state.word}`).join(", ");
  const total = bar(STATES.map((state, place) => [state.key, counts[place]]), words);
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
  byId("classes-body").replaceChildren(...rows(classes, filter.class, (name) => onPick("class", name), freeOf));
  if (namespaces !== null) {
    byId("namespaces-body").replaceChildren(...rows(namespaces, filter.namespace, (name) => onPick("namespace", name), allocatedOf));
  }
}

const freeOf = (row) => `${grouped(row.free)} of ${grouped(row.capacity)} free`;
const allocatedOf = (row) => grouped(row.allocated + row.held);

function rows(answer, chosen, onPick, figure) {
  const drawn = answer.rows.slice(0, MOST_ROWS).map((row) => rowOf(row, row.name === chosen, onPick, figure));
  const more = answer.rows.length - MOST_ROWS;
  return more > 0 ? [...drawn, el("li", { class: "muted" }, `and ${grouped(more)} more`)] : drawn;
}

function rowOf(row, isChosen, onPick, figure) {
  const shares = STATES.map((state) => [state.key, row[state.key] ?? 0]);
  const free = percent(row.free ?? 0, row.capacity ?? 0);
  const press = () => onPick(isChosen ? "" : row.name);
  const isWhole = row.capacity !== undefined;
  return el("li", {}, el("button", { type: "button", class: "row", "aria-pressed": String(isChosen), on: { click: press } },
    el("span", { class: "word", title: plain(row.name) }, plain(row.name)), isWhole && bar(shares, `${free} free`),
    el("span", { class: "number" }, figure(row))));
}
