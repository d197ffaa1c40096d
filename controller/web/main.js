// The page: what is shown, of what, and what happens when somebody does something.

import * as api from "./api.js";
import { amountTotals, hasKey, merge, nodesOf, shown, statuses, totals } from "./cells.js";
import { announce, byId, plain } from "./dom.js";
import { FitPanel } from "./fit.js";
import { NodeGrid } from "./grid.js";
import { startKeys } from "./keys.js";
import { drawMachine } from "./machine.js";
import { askForToken, startSignIn } from "./signin.js";
import { drawLegend, drawTables, namesOf } from "./sums.js";
import { follow } from "./stream.js";
import { drawDomains, drawSwitches } from "./switches.js";
import { grouped } from "./text.js";
import { onTheme, startTheme } from "./theme.js";

/** Sums and the open machine are asked for again after changes, at most this often. */
const AGAIN_MS = 1_000;
/** Devices behind switches change without any node: they are asked for again this often. */
const SWITCHES_MS = 5_000;
/** Before the next try at what did not work at all. */
const LATER_MS = 2_000;

const page = {
  rights: null,
  filter: { class: "", namespace: "", label: "" },
  nodes: new Map(),
  /** States that nodes are dimmed without. */
  states: new Set(),
  fitting: null,
  refused: null,
  opened: null,
  /** The pool behind switches that is open. */
  pool: null,
  following: null,
};

const grid = new NodeGrid({ onOpen: openNode });
const fit = new FitPanel({ onAnswer: fitAnswered, onOpenNode: openNode });

/** Signs in with the token that there is, and shows everything from the beginning. */
async function start() {
  try {
    page.rights = await api.access();
    if (!page.rights.nodes) throw new api.ApiError(403, `${page.rights.user} may not list nodehardware.hostler.dev`);
  } catch (error) {
    if (error.status === 401 || error.status === 403) return signInAgain(error);
    return later(error, start);
  }
  document.body.classList.remove("signed-out");
  byId("who").textContent = plain(page.rights.user);
  byId("fit-open").hidden = !page.rights.fits;
  byId("no-holders").hidden = page.rights.holders;
  byId("namespace-field").hidden = !page.rights.holders;
  byId("namespaces").hidden = !page.rights.holders;
  await reload();
  fromAddress();
  if (page.rights.fabric) watchSwitches();
}

let switches = null;

/** Asks for devices behind switches, now and again, as long as somebody is signed in. */
async function watchSwitches() {
  clearTimeout(switches);
  if (document.body.classList.contains("signed-out")) return;
  try {
    drawDomains(await api.fabric({ devices: "none" }), openPool);
    if (page.pool !== null) await showPool(page.pool);
  } catch (error) {
    if (error.status === 401) return signInAgain(error);
    // The right was taken away.
    if (error.status === 403) return drawDomains(null, openPool);
  }
  switches = setTimeout(watchSwitches, SWITCHES_MS);
}

async function showPool(pool) {
  const answer = await api.fabric({ devices: "busy", pool });
  if (page.pool === pool) drawSwitches(answer);
}

/** Opens the devices of a pool behind switches. */
function openPool(pool) {
  page.opened = null;
  page.pool = pool;
  byId("switches").replaceChildren();
  showPanel("switches", pool);
  showPool(pool).catch((error) => (byId("switches").textContent = plain(error.message)));
}

/** The controller is not there, or does not know the cluster yet. */
function later(error, again) {
  problem(`${error.message}; trying again`);
  setTimeout(again, LATER_MS);
}

function signInAgain(error) {
  page.following?.abort();
  page.following = null;
  if (error.status === 401) api.forgetToken();
  document.body.classList.add("signed-out");
  askForToken(error);
}

/** Asks for all nodes that pass the filters, and follows them from there. */
async function reload() {
  page.following?.abort();
  const following = (page.following = new AbortController());
  let answer;
  try {
    answer = await api.grid(page.filter, following.signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401 || error.status === 403) return signInAgain(error);
    // A filter that makes no sense makes none later.
    return error.status === 400 ? problem(error.message) : later(error, reload);
  }
  problem("");
  take(answer);
  refreshSums();
  follow({
    open: (revision, signal) => api.changes(page.filter, revision, signal),
    from: answer.revision,
    signal: following.signal,
    onEvent,
    onState,
  });
}

function take(answer) {
  page.nodes = nodesOf(answer.nodes);
  arrange();
}

function onEvent(type, data) {
  if (type === "end") return signInAgain({ status: 403, message: data.message });
  if (type === "grid") take(data);
  else if (type === "nodes") {
    const isOther = merge(page.nodes, data.nodes, data.gone ?? []);
    if (isOther || byId("order").value !== "name") arrange();
    else {
      // The same nodes in the same order, as they are now.
      grid.show(visible());
      counts();
    }
  }
  refreshSoon();
  fit.changed();
}

function onState(state, error) {
  const refused = error?.status === 401 || error?.status === 403;
  if (refused) signInAgain(error);
  byId("live").dataset.state = state;
  byId("live-words").textContent = state === "live" ? "live" : "connecting again";
  return !refused;
}

const visible = () => shown(page.nodes.values(), byId("search").value, byId("order").value);

/** Everything that depends on which nodes there are and what is searched for. */
function arrange() {
  const nodes = visible();
  grid.show(nodes);
  counts(nodes);
}

function counts(nodes = visible()) {
  const all = page.nodes.size;
  const words = nodes.length === all ? `${grouped(all)}` : `${grouped(nodes.length)} of ${grouped(all)}`;
  byId("count").textContent = `${words} node${all === 1 ? "" : "s"}`;
  byId("empty").hidden = nodes.length > 0;
  byId("empty").textContent = all > 0 ? "No node has this in its name." : "No node passes these filters.";
  drawLegend({ counts: totals(nodes), amounts: amountTotals(nodes), statuses: statuses(nodes), pressed: page.states, onPress: pressState });
}

function pressState(key) {
  if (page.states.has(key)) page.states.delete(key);
  else page.states.add(key);
  counts();
  emphasise();
}

function fitAnswered(fitting, refused) {
  Object.assign(page, { fitting, refused });
  emphasise();
}

/** Dims what was not asked for. */
function emphasise() {
  const { states, fitting, refused } = page;
  grid.emphasise((node) => {
    const fits = fitting !== null && refused === null && fitting.has(node.name);
    const isMeant = refused !== null ? refused.has(node.name) : fitting === null || fits;
    const hasState = states.size === 0 || [...states].some((key) => hasKey(node, key));
    return { isDimmed: !isMeant || !hasState, fits };
  });
}

let again = null;

function refreshSoon() {
  again ??= setTimeout(() => {
    again = null;
    refreshSums();
    if (page.opened !== null) openMachine(page.opened, false);
  }, AGAIN_MS);
}

async function refreshSums() {
  try {
    const classes = await api.availability("class");
    const namespaces = page.rights.holders ? await api.availability("namespace") : null;
    options("class", namesOf(classes, "class"));
    if (namespaces !== null) options("namespace", namesOf(namespaces, "namespace"));
    drawTables({ classes, namespaces, filter: page.filter, onPick: setFilter });
  } catch (error) {
    if (error.status === 401) signInAgain(error);
  }
}

function setFilter(name, value) {
  page.filter = { ...page.filter, [name]: value };
  byId(name).value = value;
  reload();
}

/** Choices of a filter; what is chosen stays a choice even if nothing has it any more. */
function options(name, values) {
  const select = byId(name);
  const all = [...new Set([...values, page.filter[name]].filter(Boolean))];
  const known = [...select.options].slice(1).map((option) => option.value);
  if (all.length === known.length && all.every((value, place) => value === known[place])) return;
  select.length = 1;
  for (const value of all) select.add(new Option(plain(value), value));
  select.value = page.filter[name];
}

function problem(words) {
  for (const place of [byId("problem"), byId("sign-in-problem")]) {
    place.hidden = words === "";
    place.textContent = plain(words);
  }
}

/** Opens a node; the address names it, so that it can be sent to somebody. */
function openNode(name) {
  grid.select(name);
  history.replaceState(null, "", `#node=${encodeURIComponent(name)}`);
  openMachine(name, true);
}

let opening = null;

async function openMachine(name, isNew) {
  opening?.abort();
  opening = new AbortController();
  page.opened = name;
  page.pool = null;
  if (isNew) {
    showPanel("machine", name);
    byId("machine").replaceChildren();
  }
  try {
    const machine = await api.machine(name, opening.signal);
    // Somebody who walks over devices shall not lose his place.
    if (!isNew && byId("machine").querySelector(".machine")?.contains(document.activeElement)) return;
    drawMachine(machine);
    if (isNew) announce(`${name} is open`);
  } catch (error) {
    if (error.name !== "AbortError") byId("machine").textContent = plain(error.message);
  }
}

function showPanel(which, title) {
  const panel = byId("panel");
  panel.hidden = false;
  document.body.classList.add("with-panel");
  for (const name of ["machine", "fit", "switches"]) byId(name).hidden = which !== name;
  byId("panel-title").textContent = plain(title);
  if (which === "fit") byId("fit-text").focus();
  else byId("panel-title").focus({ preventScroll: true });
}

function openFit() {
  if (!page.rights?.fits) return;
  page.opened = page.pool = null;
  showPanel("fit", "Would it fit?");
}

function closePanel() {
  if (byId("panel").hidden) return;
  byId("panel").hidden = true;
  document.body.classList.remove("with-panel");
  page.opened = page.pool = null;
  history.replaceState(null, "", location.pathname);
  grid.focus();
}

function fromAddress() {
  const name = new URLSearchParams(location.hash.slice(1)).get("node");
  if (name) openNode(name);
}

function startControls() {
  byId("search").addEventListener("input", arrange);
  byId("order").addEventListener("change", arrange);
  for (const name of ["class", "namespace"]) byId(name).addEventListener("change", (event) => setFilter(name, event.target.value));
  byId("label").addEventListener("change", (event) => setFilter("label", event.target.value.trim()));
  byId("larger").addEventListener("click", () => grid.zoom(1));
  byId("smaller").addEventListener("click", () => grid.zoom(-1));
  byId("all").addEventListener("click", () => grid.zoom(0));
  byId("fit-open").addEventListener("click", openFit);
  byId("panel-close").addEventListener("click", closePanel);
  byId("panel-title").addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) byId("machine").querySelector(".device")?.focus();
  });
  byId("sign-out").addEventListener("click", () => {
    api.forgetToken();
    location.reload();
  });
  addEventListener("hashchange", fromAddress);
}

startTheme();
onTheme(() => grid.recolour());
startControls();
startKeys({ grid, openFit, closePanel });
startSignIn((token, isKept) => {
  api.useToken(token, isKept);
  start();
});
if (api.hasToken()) start();
else askForToken(null);
