// The drawing of a machine: its NUMA nodes, and in each what devices there are, how they are and who has them.

import { bar, byId, el, plain } from "./dom.js";
import { Holders } from "./holders.js";
import { Kept } from "./kept.js";
import { REPORTS, STATES } from "./signs.js";
import { amountCounts, amountOf, amountShown, byName, counted, grouped, shareTaken } from "./text.js";
import { walk } from "./walk.js";

/** More CPUs than that are shown as a bar. */
const MOST_CELLS = 256;
const CPUS = /(^|\/)cpus?$/i;

/** Draws `machine` into the panel. */
export function drawMachine(machine) {
  const holders = new Holders(machine);
  const kept = new Kept(machine);
  const facts = el("p", { class: "facts", "aria-live": "polite" }, "Point at a device, or walk over them with the arrow keys.");
  const tell = (device) => facts.replaceChildren(...words(device, holders, kept));
  const zones = zonesOf(machine.devices);
  const boxes = zones.map(([numa, devices]) => zoneBox(numa, devices, holders, tell));
  const drawing = el("div", { class: "machine", role: "group", "aria-label": `devices of ${plain(machine.name)}` }, boxes);
  walk(drawing, ".device");
  const body = [summary(machine), notes(machine), drawing, facts, holders.table(drawing), kept.table(), about(machine)];
  byId("machine").replaceChildren(...body.filter(Boolean));
}

/** Devices by NUMA node; those that are on none come last. */
function zonesOf(devices) {
  const zones = new Map();
  for (const device of devices) {
    const numa = device.numaNode ?? null;
    if (!zones.has(numa)) zones.set(numa, []);
    zones.get(numa).push(device);
  }
  return [...zones].sort(([one], [other]) => (one ?? Infinity) - (other ?? Infinity));
}

function summary(machine) {
  const counts = STATES.map((state) => [state.key, machine.devices.filter((device) => device.state === state.key).length]);
  const told = counts.filter(([, count]) => count > 0).map(([key, count]) => `${grouped(count)} ${key}`);
  const label = told.join(", ") || "no devices";
  const parts = machine.devices.filter(({ state }) => state === "free").reduce((sum, { amounts }) => sum + shareTaken(amounts), 0);
  const moved = { allocated: parts, free: -parts };
  const shares = counts.map(([key, count]) => [key, count + (moved[key] ?? 0)]);
  return el("div", { class: "summary" }, bar(shares, label), el("p", {}, `${counted(machine.devices.length, "device")}: ${label}`));
}

/** What makes it doubtful, before everything else. */
function notes(machine) {
  const report = REPORTS.find(({ key }) => key === (machine.isThere ? (machine.report ?? "none") : "gone"));
  const list = [];
  if (report && report.key !== "fresh") list.push(`${report.word}: ${report.hint}`);
  if (machine.isThere && !machine.isReady) list.push("not ready: its kubelet does not say that it is");
  if (machine.isThere && !machine.isSchedulable) list.push("cordoned: no new pod comes here");
  list.push(...(machine.troubles ?? []));
  if (!machine.holdersShown) {
    list.push("who holds what is left out: your token may not list resourceclaims.resource.k8s.io");
  }
  if (!machine.reservationsShown && machine.devices.some(({ state }) => state === "held")) {
    list.push("for whom devices are held is left out: your token may not list reservations.hostler.dev");
  }
  return list.length === 0 ? null : el("ul", { class: "notes" }, list.map((note) => el("li", {}, plain(note))));
}

function zoneBox(numa, devices, holders, tell) {
  const title = numa === null ? "on no NUMA node" : `NUMA node ${numa}`;
  const free = devices.filter(({ state }) => state === "free").length;
  const groups = grouping(devices).map(([name, group]) => groupBox(name, group, holders, tell));
  const heading = el("h3", {}, title, el("small", {}, ` ${grouped(free)} of ${counted(devices.length, "device")} free`));
  return el("section", { class: "zone", "aria-label": title }, heading, groups);
}

/** Devices of one class stand together; of one driver where no class has them. */
function grouping(devices) {
  const groups = new Map();
  for (const device of devices) {
    const name = device.classes?.[0] ?? device.driver;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(device);
  }
  return [...groups].sort(([one], [other]) => byName(one, other));
}

function groupBox(name, devices, holders, tell) {
  const sorted = [...devices].sort((one, other) => byName(one.name, other.name));
  const drawn = sorted.map((device) => (amountsOf(device).length > 0 ? shared(device, holders) : whole(device, holders)));
  drawn.forEach((element, index) => {
    for (const event of ["focus", "pointerenter", "click"]) element.addEventListener(event, () => tell(sorted[index]));
  });
  return el("div", { class: "kind" }, el("h4", {}, plain(name)), el("div", { class: "devices" }, drawn));
}

/** A device that one claim has, or nobody: a cell with the end of its name, and a sign. */
function whole(device, holders) {
  const { key, sign } = mark(device, holders);
  const cell = el("button", { type: "button", class: `device cell ${key}`, "aria-label": spoken(device, holders), tabindex: "-1" },
    el("span", { class: "number" }, ending(device.name)), el("span", { class: "sign" }, sign));
  holders.paint(cell, device);
  return cell;
}

/** A device of which claims have parts: CPUs as cells, other amounts as bars. */
function shared(device, holders) {
  const { key, sign } = mark(device, holders);
  const head = el("span", { class: "head" }, el("b", {}, plain(device.name)), el("span", { class: "sign" }, sign));
  const parts = amountsOf(device).map((amount) => amountBox(device, amount, holders));
  const box = el("button", { type: "button", class: `device box ${key}`, "aria-label": spoken(device, holders), tabindex: "-1" }, head, parts);
  holders.paint(box, device);
  return box;
}

/** What there is of each capacity: name, capacity, allocated, free. */
const amountsOf = (device) => Object.entries(device.amounts ?? {}).map(([name, counts]) => ({ name, ...amountCounts(counts) }));

function amountBox(device, { name, capacity, allocated, free }, holders) {
  const [all, taken] = [amountOf(capacity), amountOf(allocated)];
  const left = `${plain(name)} ${leftOf(name, capacity, free)} free`;
  const isCounted = CPUS.test(name) && Number.isInteger(all) && all <= MOST_CELLS;
  const shares = sharesOf(device, name, taken);
  const inner = isCounted ? cpuCells(device, shares, all, holders) : shareBar(shares, all, holders);
  return el("span", { class: "amount" }, el("span", { class: "left" }, left), inner);
}

/** `3/4`, `46 GiB/62 GiB`. */
const leftOf = (name, capacity, free) => `${amountShown(free, name)}/${amountShown(capacity, name)}`;

/** So many CPUs, of which holders have so many. Which ones they are, the node alone knows. */
function cpuCells(device, shares, all, holders) {
  const cells = shares.flatMap(([holder, amount]) => new Array(Math.min(all, Math.ceil(amount))).fill(holder));
  const idle = device.state === "allocated" ? "free" : device.state;
  return el("span", { class: "cpus", "aria-hidden": "true" }, Array.from({ length: all }, (_, index) =>
    index < cells.length ? holders.swatch(cells[index], "i") : el("i", { class: idle })));
}

function shareBar(shares, all, holders) {
  const parts = shares.map(([holder, amount]) => sized(holders.swatch(holder, "span"), amount, all));
  return el("span", { class: "bar", "aria-hidden": "true" }, parts);
}

function sized(element, part, whole) {
  element.classList.add("share");
  element.style.setProperty("--share", `${whole > 0 ? Math.min(100, (100 * part) / whole) : 0}%`);
  return element;
}

/** Who has how much of an amount; what nobody is named for is somebody's all the same. */
function sharesOf(device, name, taken) {
  const known = (device.holds ?? []).map((hold) => [hold.holder, amountOf(hold.amounts?.[name] ?? "0")]);
  const named = known.reduce((sum, [, amount]) => sum + amount, 0);
  return [...known, [null, taken - named]].filter(([, amount]) => amount > 0);
}

/** Sign and state: letters of holders, or the sign of a state. */
function mark(device, holders) {
  const state = STATES.find(({ key }) => key === device.state) ?? STATES[STATES.length - 1];
  const letters = holders.letters(device);
  const isWell = state.key === "allocated" || state.key === "free";
  const sign = isWell ? letters || state.sign : `${state.sign}${letters}`;
  return { key: state.key, sign };
}

/** The end of a name that tells it from its neighbours. */
function ending(name) {
  const digits = name.match(/\d+$/)?.[0] ?? name;
  return plain(digits.slice(-4));
}

function spoken(device, holders) {
  const names = holders.namesOf(device);
  const amounts = amountsOf(device).map(({ name, capacity, free }) => `${name} ${leftOf(name, capacity, free)} free`);
  const held = names.length === 0 ? "" : `, held by ${names.join(", ")}`;
  const kept = device.keptFor ? `, kept for ${device.keptFor}` : "";
  return plain(`${device.name}: ${[device.state, ...amounts].join(", ")}${held}${kept}`);
}

function words(device, holders, kept) {
  const lines = [
    el("b", {}, plain(`${device.driver}/${device.pool}/${device.name}`)),
    el("span", { class: `tag ${device.state}` }, device.state),
  ];
  const names = holders.namesOf(device, true);
  if (names.length > 0) lines.push(el("br"), `held by ${names.map(plain).join(", ")}`);
  const forWhom = kept.words(device);
  if (forWhom !== null) lines.push(el("br"), plain(forWhom));
  const amounts = amountsOf(device).map(({ name, capacity, free }) => `${name} ${leftOf(name, capacity, free)} free`);
  if (amounts.length > 0) lines.push(el("br"), plain(amounts.join(", ")));
  if (device.classes?.length) lines.push(el("br"), plain(`class ${device.classes.join(", ")}`));
  return lines;
}

/** What else is known: its labels. */
function about(machine) {
  const labels = Object.entries(machine.labels ?? {});
  if (labels.length === 0) return null;
  const pairs = labels.map(([name, value]) => [el("dt", {}, plain(name)), el("dd", {}, plain(value) || "–")]);
  return el("details", { class: "about" }, el("summary", {}, counted(labels.length, "label")), el("dl", {}, pairs));
}
