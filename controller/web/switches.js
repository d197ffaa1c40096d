// Devices behind switches: the domains beside the grid, and the devices of one domain that are not simply free.

import { byId, el, plain } from "./dom.js";
import { counted, grouped } from "./text.js";

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
  const head = el("tr", {}, ["Device", "State", "Node", "Claim", "Since", "Why"].map((word) => el("th", { scope: "col" }, word)));
  const rows = devices.map(deviceRow);
  return el("section", { class: "about" },
    el("p", {}, plain(`${countWords(domain.counts)}; reached by ${counted(domain.nodes.length, "node")}`)),
    devices.length === 0 && el("p", {}, "All of them are free."),
    devices.length > 0 && el("table", { class: "holders plain-table" }, el("thead", {}, head), el("tbody", {}, rows)),
    more > 0 && el("p", {}, `and ${grouped(more)} more`));
}

function deviceRow(device) {
  const name = device.enclosure ? `${device.name} in ${device.enclosure}` : device.name;
  const cells = [name, device.state, device.nodeName ?? "", device.claim ?? "", device.since ?? "", why(device)];
  return el("tr", { data: { device: device.name } }, cells.map((cell) => el("td", {}, plain(cell))));
}

/** What the device waits for, until when, and whether it holds data of an earlier claim. */
export function why({ message, deadline, used, nodeName }) {
  const until = deadline ? `until ${deadline}` : "";
  const data = used && !nodeName ? "it may hold data of an earlier claim, and is erased before the next one" : "";
  return [message, until, data].filter((part) => part).join("; ");
}
