// Draws tiles on a canvas: each NUMA node is a column that fills from below. Colour is never alone: held is hatched, drained
// is lined, unhealthy has a corner, unknown is dotted.

import { tileWords } from "./cells.js";
import { REPORTS, STACK, STATES, placeOf } from "./signs.js";
import { cut } from "./text.js";

const UNHEALTHY = placeOf("unhealthy");
const OTHERS = placeOf("others");
/** Pixels of one repetition of a pattern. */
const PATTERN = 6;

/** The colours of the page as it is now. `probe` is any element within it. */
export function readColours(probe) {
  const of = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const names = [...STATES.map((state) => state.key), "ink", "muted", "line", "tile", "mark", "fits", "page"];
  return Object.fromEntries(names.map((name) => [name, of(name)]));
}

/** What fills the part of a column that is in a state. */
export function readFills(colours) {
  const strokes = {
    held: [[0, PATTERN, PATTERN, 0], [-1, 1, 1, -1], [PATTERN - 1, PATTERN + 1, PATTERN + 1, PATTERN - 1]],
    drained: [[0, 1.5, PATTERN, 1.5], [0, 4.5, PATTERN, 4.5]],
    unhealthy: [[0, 0, PATTERN, PATTERN], [0, PATTERN, PATTERN, 0]],
    unknown: [[1, 1.5, 2.5, 1.5], [4, 4.5, 5.5, 4.5]],
    blocked: [[1.5, 0, 1.5, PATTERN], [4.5, 0, 4.5, PATTERN]],
  };
  const fill = ({ key }) => [key, strokes[key] ? pattern(colours[key], colours.mark, strokes[key]) : colours[key]];
  return Object.fromEntries(STATES.map(fill));
}

function pattern(colour, mark, lines) {
  const scale = Math.max(1, Math.round(devicePixelRatio));
  const canvas = new OffscreenCanvas(PATTERN * scale, PATTERN * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.fillStyle = colour;
  context.fillRect(0, 0, PATTERN, PATTERN);
  context.strokeStyle = mark;
  context.lineWidth = 1.2;
  for (const [x, y, toX, toY] of lines) {
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(toX, toY);
    context.stroke();
  }
  const repeated = context.createPattern(canvas, "repeat");
  repeated.setTransform(new DOMMatrix().scale(1 / scale));
  return repeated;
}

/** Draws a tile. `look` has colours and fills, and how the node is meant: dimmed, fitting. */
export function paintTile(context, node, box, size, look) {
  context.globalAlpha = look.isDimmed ? 0.22 : 1;
  const inner = size.detail < 2 ? box : paintFrame(context, node, box, size, look);
  paintZones(context, node, inner, look);
  paintReport(context, node, box, inner, look);
  if (node.counts[UNHEALTHY] > 0) paintCorner(context, box, size, look);
  context.globalAlpha = 1;
  if (look.fits) paintFits(context, box, size, look);
}

/** Frame, name and numbers of a large tile; gives the room that is left for columns. */
function paintFrame(context, node, { x, y, width, height }, { detail }, { colours, domain }) {
  context.fillStyle = colours.tile;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(x + 0.5, y + 0.5, width - 1, height - 1, 4);
  context.fill();
  context.stroke();
  const pad = detail === 3 ? 8 : 5;
  const fontSize = detail === 3 ? 12 : 10;
  context.textBaseline = "top";
  context.fillStyle = colours.ink;
  context.font = `600 ${fontSize}px ${FONT}`;
  context.fillText(clipped(context, node.name.slice(0, node.name.length - domain), width - 2 * pad - (detail === 3 ? 14 : 8)), x + pad, y + pad);
  let top = y + pad + fontSize + 4;
  if (detail === 3) {
    context.fillStyle = colours.muted;
    context.font = `11px ${FONT}`;
    const words = tileWords(node);
    context.fillText(clipped(context, words, width - 2 * pad), x + pad, top);
    top += 17;
  }
  return { x: x + pad, y: top, width: width - 2 * pad, height: y + height - pad - top };
}

const FONT = 'system-ui, -apple-system, "Segoe UI", sans-serif';

/** As much of a text as fits into a width: its beginning and its end. */
function clipped(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, Math.min(text.length, 200)];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (context.measureText(cut(text, middle)).width <= width) low = middle;
    else high = middle - 1;
  }
  return cut(text, low);
}

/** How wide a column is beside others: what is on no NUMA node stands aside. */
const weight = (zone) => (zone.numa < 0 ? 0.3 : 1);

/** Columns, one for each NUMA node; as wide as it has devices would make small ones vanish, so all are alike. */
function paintZones(context, node, { x, y, width, height }, { colours, fills }) {
  const zones = node.zones.length === 0 ? [{ numa: 0, counts: [], amounts: [], devices: 0 }] : node.zones;
  const gap = zones.length < 2 || width / zones.length < 5 ? 0 : width > 60 ? 3 : 1;
  const unit = (width + gap) / zones.reduce((sum, zone) => sum + weight(zone), 0);
  let edge = x;
  zones.forEach((zone) => {
    const left = Math.round(edge);
    edge += weight(zone) * unit;
    const right = Math.max(left + 1, Math.round(edge) - gap);
    // What is not of a chosen namespace stays empty.
    context.fillStyle = zone.devices === 0 || zone.counts[OTHERS] > 0 ? colours.page : fills.free;
    context.fillRect(left, y, right - left, height);
    paintStack(context, zone, left, y, right - left, height, fills);
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, y + 0.5, right - left - 1, height - 1);
  });
}

function paintStack(context, zone, left, top, width, height, fills) {
  let below = 0;
  let bottom = top + height;
  for (const key of STACK) {
    const count = zone.amounts[placeOf(key)] ?? 0;
    if (count <= 0) continue;
    below += count;
    // What is there at all is seen, and what is free at all as well.
    const edge = top + height - Math.max(1, Math.round((below * height) / zone.devices));
    const upper = Math.max(below < zone.devices ? top + 1 : top, Math.min(edge, bottom - 1));
    context.fillStyle = fills[key];
    context.fillRect(left, upper, width, bottom - upper);
    bottom = upper;
  }
}

/** A dashed frame around a node that is stale, and a question mark over one that is unknown. */
function paintReport(context, node, { x, y, width, height }, inner, { colours }) {
  const { key } = REPORTS[node.report];
  if (key === "fresh" || key === "none") return paintFlags(context, node, { x, y, width, height }, { colours });
  context.strokeStyle = colours.ink;
  context.lineWidth = 1.5;
  context.setLineDash([3, 2]);
  context.strokeRect(x + 0.75, y + 0.75, width - 1.5, height - 1.5);
  context.setLineDash([]);
  if (key === "stale") return;
  const size = Math.min(26, Math.max(10, inner.height - 3));
  const [centre, middle] = [inner.x + inner.width / 2, inner.y + inner.height / 2 + 1];
  context.font = `700 ${size}px ${FONT}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineWidth = 3;
  context.strokeStyle = colours.page;
  context.strokeText("?", centre, middle);
  context.fillStyle = colours.ink;
  context.fillText("?", centre, middle);
  context.textAlign = "start";
}

/** A bar on the left where the node is not ready, or takes no new pods. */
function paintFlags(context, { flags }, { x, y, height }, { colours }) {
  if (flags === 0) return;
  context.fillStyle = colours.ink;
  context.fillRect(x, y, height < 20 ? 2 : 3, height);
}

/** A corner where something does not work, with the sign where there is room for it. */
function paintCorner(context, { x, y, width }, { detail }, { colours }) {
  const side = [7, 8, 11, 15, 20][detail + (width > 15 ? 1 : 0)] ?? 8;
  context.fillStyle = colours.unhealthy;
  context.strokeStyle = colours.page;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x + width - side, y);
  context.lineTo(x + width, y);
  context.lineTo(x + width, y + side);
  context.closePath();
  context.fill();
  context.stroke();
  if (side < 11) return;
  context.fillStyle = colours.page;
  context.font = `800 ${Math.round(side * 0.6)}px ${FONT}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText("!", x + width - side * 0.3, y + side * 0.36);
  context.textAlign = "start";
}

/** A frame and, where there is room, a tick: what is asked for fits here. */
function paintFits(context, { x, y, width, height }, { detail }, { colours }) {
  context.strokeStyle = colours.fits;
  context.lineWidth = detail < 2 ? 2 : 3;
  context.strokeRect(x + 1, y + 1, width - 2, height - 2);
  const side = detail < 1 ? 8 : 14;
  context.fillStyle = colours.fits;
  context.fillRect(x, y + height - side, side, side);
  context.strokeStyle = colours.page;
  context.lineWidth = detail < 1 ? 1.4 : 2;
  context.beginPath();
  context.moveTo(x + side * 0.2, y + height - side * 0.45);
  context.lineTo(x + side * 0.42, y + height - side * 0.22);
  context.lineTo(x + side * 0.82, y + height - side * 0.76);
  context.stroke();
}
