// Devices behind switches: the domains beside the grid, and the devices of one domain that are not simply free.

import { byId, el, plain } from "./dom.js";
import { counted, duration, grouped } from "./text.js";

/** Rows of a table; the rest is counted. */
const MOST_ROWS = 200;

/** The name of a domain's pool: `fabric/row1/cxl`. */
export const poolOf = ({ manager, domain }) => `fabric/${manager}/${domain}`;

/** A row for each domain; pressing one opens its devices. Nothing where there is no domain. */
export function drawDomains(fabric, onOpen) {
  const domains = fabric?.domains ?? [];
  byId("switches-section").hidden = domains.length === 0;
  byId("switches-body").replaceChildren(...domains.map((domain) => domainRow(domain, onOpen)));
}

function domainRow(domain, onOpen) {
  const pool = poolOf(domain);
  return el("li", {}, el("button", { type: "button", class: "row", data: { pool }, on: { click: () => onOpen(pool) } },
    el("span", { class: "word", title: plain(pool) }, plain(`${domain.manager}/${domain.domain}`)),
    el("span", { class: "number amounts" }, plain(countWords(domain.counts)))));
}

/** `12 Free, 1 Attaching`; the states in the order in which they are told. */
export const countWords = (counts) => Object.entries(counts).map(([state, count]) => `${grouped(count)} ${state}`).join(", ");

/** Draws the devices of a domain that are not simply free. */
export function drawSwitches(fabric) {
  byId("switches").replaceChildren(...fabric.domains.map(domainTable));
}

function domainTable(domain) {
  const devices = domain.devices.slice(0, MOST_ROWS);
  const more = domain.devices.length - devices.length;
  const head = el("tr", {}, ["Device", "State", "Node", "Claim", "For"].map((word) => el("th", { scope: "col" }, word)));
  const rows = devices.flatMap(deviceRows);
  return el("section", { class: "about" },
    el("p", {}, plain(`${countWords(domain.counts)}; reached by ${counted(domain.nodes.length, "node")}`)),
    devices.length === 0 && el("p", {}, "All of them are free."),
    devices.length > 0 && el("table", { class: "holders plain-table" }, el("thead", {}, head), el("tbody", {}, rows)),
    more > 0 && el("p", {}, `and ${grouped(more)} more`));
}

/** A row of facts, and where there is a reason another one below it: a sentence is wider than all columns. */
function deviceRows(device) {
  const name = device.enclosure ? `${device.name} in ${device.enclosure}` : device.name;
  const now = Date.now();
  const cells = [name, device.state, device.nodeName ?? "", device.claim ?? ""].map((cell) => el("td", {}, plain(cell)));
  const since = el("td", { title: plain(device.since ?? "") }, device.since ? duration(secondsBetween(device.since, now)) : "");
  const reason = why(device, now);
  return [
    el("tr", { class: reason ? "with-reason" : "", data: { device: device.name } }, cells, since),
    reason && el("tr", { class: "reason-row" }, el("td", { colspan: "5" }, plain(reason))),
  ].filter((row) => row);
}

const secondsBetween = (since, now) => Math.max(0, (now - Date.parse(since)) / 1000);

/** What the device waits for, for how long yet, and whether it holds data of an earlier claim. */
function why({ message, deadline, used, nodeName }, now) {
  const left = deadline ? (Date.parse(deadline) - now) / 1000 : NaN;
  const until = left > 0 ? `for ${duration(left)} at most` : deadline ? `until ${deadline}` : "";
  const data = used && !nodeName ? "it may hold data of an earlier claim, and is erased before the next one" : "";
  return [message, until, data].filter((part) => part).join("; ");
}
