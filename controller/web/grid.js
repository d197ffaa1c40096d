// The grid of nodes: a canvas that draws what is in sight, and one real cell over it that has the focus.

import { SIZES, described, fittingSize, layout } from "./cells.js";
import { byId, plain } from "./dom.js";
import { paintTile, readColours, readFills } from "./paint.js";
import { sharedDomain } from "./text.js";

export class NodeGrid {
  #nodes = [];
  #size = 1;
  /** A place in `SIZES`, or null for what fits. */
  #chosen = null;
  #plan = { columns: 1, rows: 0, tile: 0, height: 0 };
  /** How many letters at the end of every name say nothing: the domain that all nodes have. */
  #domain = 0;
  #current = 0;
  #isDrawing = false;
  #hasPainted = false;
  #look = null;
  #emphasis = () => ({ isDimmed: false, fits: false });
  #onOpen;

  constructor({ onOpen }) {
    this.#onOpen = onOpen;
    this.scroller = byId("grid");
    this.canvas = byId("canvas");
    this.space = byId("grid-space");
    this.cell = byId("cell");
    this.hint = byId("hint");
    this.#listen();
  }

  /** Shows these nodes, in this order. The current one stays the same node. */
  show(nodes) {
    const name = this.#nodes[this.#current]?.name;
    this.#nodes = nodes;
    this.#domain = sharedDomain(nodes.map((node) => node.name)).length;
    const place = nodes.findIndex((node) => node.name === name);
    this.#current = Math.max(0, place >= 0 ? place : Math.min(this.#current, nodes.length - 1));
    this.arrange();
  }

  /** Decides of each node whether it is dimmed, and whether something fits there. */
  emphasise(of) {
    this.#emphasis = of;
    this.redraw();
  }

  /** Larger or smaller tiles; 0 for as large as fits. */
  zoom(step) {
    this.#chosen = step === 0 ? null : Math.min(SIZES.length - 1, Math.max(0, this.#size + step));
    this.arrange();
    this.#reveal();
  }

  /** Colours have changed. */
  recolour() {
    this.#look = null;
    this.redraw();
  }

  /** Where everything is, for the width that there is. */
  arrange() {
    const { clientWidth, clientHeight } = this.scroller;
    this.#size = this.#chosen ?? fittingSize(this.#nodes.length, clientWidth, clientHeight);
    this.#plan = layout(this.#nodes.length, this.#size, clientWidth);
    this.space.style.height = `${Math.max(this.#plan.height, clientHeight)}px`;
    this.scroller.setAttribute("aria-rowcount", this.#plan.rows);
    this.scroller.setAttribute("aria-colcount", this.#plan.columns);
    this.#placeCell();
    this.redraw();
  }

  /** Draws once before the next frame, however often it is asked. */
  redraw() {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => {
      this.#isDrawing = false;
      this.#draw();
    });
  }

  focus() {
    this.cell.focus({ preventScroll: true });
  }

  /** Makes a node the current one, if it is shown. */
  select(name) {
    const place = this.#nodes.findIndex((node) => node.name === name);
    if (place >= 0) this.#move(place);
  }

  #listen() {
    new ResizeObserver(() => this.arrange()).observe(this.scroller);
    this.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
    this.space.addEventListener("pointermove", (event) => this.#point(event));
    this.space.addEventListener("pointerleave", () => (this.hint.hidden = true));
    this.space.addEventListener("click", (event) => this.#click(event));
    this.cell.addEventListener("keydown", (event) => this.#key(event));
    this.cell.addEventListener("focus", () => this.#reveal());
  }

  #box(place) {
    const { height, gap } = SIZES[this.#size];
    const { columns, tile: width } = this.#plan;
    const [column, row] = [place % columns, Math.floor(place / columns)];
    return { x: gap + column * (width + gap), y: gap + row * (height + gap), width, height };
  }

  #at(event) {
    const area = this.space.getBoundingClientRect();
    const { height, gap } = SIZES[this.#size];
    const width = this.#plan.tile;
    const column = Math.floor((event.clientX - area.left - gap / 2) / (width + gap));
    const row = Math.floor((event.clientY - area.top - gap / 2) / (height + gap));
    const place = row * this.#plan.columns + column;
    return column >= 0 && column < this.#plan.columns && row >= 0 && place < this.#nodes.length ? place : -1;
  }

  #point(event) {
    const place = this.#at(event);
    this.hint.hidden = place < 0;
    this.space.classList.toggle("pointed", place >= 0);
    if (place < 0) return;
    this.hint.textContent = plain(described(this.#nodes[place]));
    const isRight = event.clientX > innerWidth / 2;
    this.hint.style.left = isRight ? "auto" : `${event.clientX + 14}px`;
    this.hint.style.right = isRight ? `${innerWidth - event.clientX + 14}px` : "auto";
    this.hint.style.top = `${Math.min(event.clientY + 14, innerHeight - 60)}px`;
  }

  #click(event) {
    const place = this.#at(event);
    if (place < 0) return;
    this.#move(place);
    this.focus();
    this.#onOpen(this.#nodes[place].name);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { columns } = this.#plan;
    const { height, gap } = SIZES[this.#size];
    const page = columns * Math.max(1, Math.floor(this.scroller.clientHeight / (height + gap)) - 1);
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -page, PageDown: page };
    if (event.key in steps) this.#step(steps[event.key]);
    else if (event.key === "Home") this.#move(0);
    else if (event.key === "End") this.#move(this.#nodes.length - 1);
    else if ((event.key === "Enter" || event.key === " ") && this.#nodes.length > 0) {
      this.#onOpen(this.#nodes[this.#current].name);
    } else return;
    event.preventDefault();
  }

  #step(by) {
    const last = this.#nodes.length - 1;
    const to = this.#current + by;
    if (to < 0 || to > last) {
      // A whole row further would leave the grid: its first or last row is reached, or nothing moves.
      if (Math.abs(by) <= this.#plan.columns) return;
    }
    this.#move(Math.min(last, Math.max(0, to)));
  }

  #move(place) {
    if (this.#nodes.length === 0) return;
    this.#current = place;
    this.#placeCell();
    this.#reveal();
  }

  /** The one real cell is where the current node is, and says what it is like. */
  #placeCell() {
    const node = this.#nodes[this.#current];
    this.cell.hidden = node === undefined;
    if (node === undefined) return;
    const { x, y, width, height } = this.#box(this.#current);
    Object.assign(this.cell.style, { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` });
    this.cell.setAttribute("aria-label", plain(described(node)));
    this.cell.setAttribute("aria-colindex", (this.#current % this.#plan.columns) + 1);
    this.cell.parentElement.setAttribute("aria-rowindex", Math.floor(this.#current / this.#plan.columns) + 1);
  }

  #reveal() {
    const { y, height } = this.#box(this.#current);
    const { scrollTop, clientHeight } = this.scroller;
    if (y < scrollTop) this.scroller.scrollTop = y - 4;
    else if (y + height > scrollTop + clientHeight) this.scroller.scrollTop = y + height - clientHeight + 4;
  }

  #draw() {
    const { clientWidth, clientHeight, scrollTop } = this.scroller;
    const ratio = devicePixelRatio || 1;
    const [wide, high] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      Object.assign(this.canvas, { width: wide, height: high });
      Object.assign(this.canvas.style, { width: `${clientWidth}px`, height: `${clientHeight}px` });
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, clientWidth, clientHeight);
    this.#look ??= this.#readLook();
    const size = SIZES[this.#size];
    const rowHeight = size.height + size.gap;
    const first = Math.max(0, Math.floor((scrollTop - size.gap) / rowHeight)) * this.#plan.columns;
    const rows = Math.ceil(clientHeight / rowHeight) + 1;
    const last = Math.min(this.#nodes.length, first + rows * this.#plan.columns);
    for (let place = first; place < last; place += 1) {
      const box = this.#box(place);
      const node = this.#nodes[place];
      const look = { ...this.#look, ...this.#emphasis(node), domain: this.#domain };
      const [left, right] = [Math.round(box.x), Math.round(box.x + box.width)];
      paintTile(context, node, { ...box, x: left, y: box.y - scrollTop, width: right - left }, size, look);
    }
    if (this.#nodes.length > 0 && !this.#hasPainted) {
      // What benchmarks read.
      performance.mark("hostler:painted");
      this.#hasPainted = true;
    }
  }

  #readLook() {
    const colours = readColours(byId("probe"));
    return { colours, fills: readFills(colours) };
  }
}
