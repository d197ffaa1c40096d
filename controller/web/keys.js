// Keys that work everywhere on the page. None of them does anything while somebody types.

import { byId } from "./dom.js";

export function startKeys({ grid, openFit, closePanel }) {
  const keys = {
    "/": () => byId("search").select(),
    "?": () => byId("help").showModal(),
    f: openFit,
    g: () => grid.focus(),
    "+": () => grid.zoom(1),
    "-": () => grid.zoom(-1),
    0: () => grid.zoom(0),
  };
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") return leave(event, grid, closePanel);
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || isAway()) return;
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  byId("help-close").addEventListener("click", () => byId("help").close());
}

/** Out of a dialog, then out of what is typed into, then out of the panel. */
function leave(event, grid, closePanel) {
  if (isAway()) return;
  event.preventDefault();
  if (event.target.id === "search") {
    if (event.target.value === "") return grid.focus();
    event.target.value = "";
    event.target.dispatchEvent(new Event("input"));
    return;
  }
  closePanel();
}

const isTyping = (target) => target instanceof Element && target.matches("input, textarea, select");
const isAway = () => byId("help").open || document.body.classList.contains("signed-out");
