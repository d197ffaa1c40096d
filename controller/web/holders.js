// Who holds what on one machine: a letter and a colour for each claim, and the table that tells them.

import { el, plain } from "./dom.js";
import { colourOf, letterOf } from "./signs.js";
import { amountOf, amountShown, counted, cut } from "./text.js";

/** Letters beside a device; more are counted. */
const MOST_LETTERS = 4;
/** The longest name of a claim in the table; all of it is in its title. */
const LONGEST_NAME = 44;
/** Pods that are named of one claim. */
const MOST_PODS = 3;

export class Holders {
  #holders;
  #devices;
  #isShown;

  constructor({ holders, devices, holdersShown }) {
    this.#holders = holders ?? [];
    this.#devices = devices;
    this.#isShown = holdersShown;
  }

  /** Each holder of a device once. */
  #of(device) {
    return [...new Set((device.holds ?? []).map(({ holder }) => holder))];
  }

  /** `ab`, `abcd+3`. */
  letters(device) {
    const all = this.#of(device);
    const more = all.length > MOST_LETTERS ? `+${all.length - MOST_LETTERS}` : "";
    return all.slice(0, MOST_LETTERS).map(letterOf).join("") + more;
  }

  /** `ml/train`, with pods where they are wanted. */
  namesOf(device, withPods = false) {
    return this.#of(device).map((index) => {
      const holder = this.#holders[index];
      const pods = withPods && holder.pods?.length ? ` (${podWords(holder.pods)})` : "";
      return `${holder.namespace}/${holder.name}${pods}`;
    });
  }

  /** Gives an element the colour of the only holder; several have none together. */
  paint(element, device) {
    const all = this.#of(device);
    element.dataset.holders = ` ${all.join(" ")} `;
    if (all.length === 1 && device.state === "allocated") element.classList.add(`holder-${colourOf(all[0])}`);
  }

  /** A small piece in the colour of a holder; of somebody, if it is not said whose. */
  swatch(index, tag) {
    return index === null ? el(tag, { class: "allocated" }) : el(tag, { class: `holder-${colourOf(index)}` });
  }

  /** The holders, with what they have. Each shows its devices in `drawing` when it is pressed. */
  table(drawing) {
    if (!this.#isShown) return null;
    if (this.#holders.length === 0) return el("p", { class: "muted" }, "No claim holds anything here.");
    const head = el("tr", {}, ["", "Claim", "Pods", "Holds"].map((word) => el("th", { scope: "col" }, word)));
    const rows = this.#holders.map((holder, index) => this.#row(holder, index, drawing));
    return el("table", { class: "holders" }, el("caption", {}, "Holders"), el("thead", {}, head), el("tbody", {}, rows));
  }

  #row(holder, index, drawing) {
    const letter = el("span", { class: `letter holder-${colourOf(index)}`, "aria-hidden": "true" }, letterOf(index));
    const press = (event) => highlight(drawing, index, event.currentTarget);
    const full = plain(`${holder.namespace}/${holder.name}`);
    const name = el("button", { type: "button", class: "link", "aria-pressed": "false", title: full, on: { click: press } }, cut(full, LONGEST_NAME));
    return el("tr", {}, el("td", {}, letter), el("td", {}, name), el("td", {}, plain(podWords(holder.pods ?? []))),
      el("td", {}, plain(this.#holdings(index))));
  }

  /** `cpus 2, memory 16 GiB, 4 devices`. */
  #holdings(index) {
    const amounts = new Map();
    let devices = 0;
    for (const device of this.#devices) {
      const holds = (device.holds ?? []).filter(({ holder }) => holder === index);
      for (const [name, amount] of holds.flatMap((hold) => Object.entries(hold.amounts ?? {}))) {
        const [sum, shown] = amounts.get(name) ?? [0, amount];
        amounts.set(name, [sum + amountOf(amount), shown]);
      }
      if (holds.length > 0 && holds.every((hold) => Object.keys(hold.amounts ?? {}).length === 0)) devices += 1;
    }
    const parts = [...amounts].map(([name, [sum, example]]) => `${name} ${total(name, sum, example)}`);
    if (devices > 0) parts.push(counted(devices, "device"));
    return parts.join(", ") || "nothing";
  }
}

function total(name, sum, example) {
  return /[KMGTPE]i$/.test(example) ? amountShown(`${sum / 2 ** 20}Mi`, name) : amountShown(sum, name);
}

function podWords(pods) {
  if (pods.length === 0) return "–";
  const more = pods.length > MOST_PODS ? ` and ${pods.length - MOST_PODS} more` : "";
  return pods.slice(0, MOST_PODS).join(", ") + more;
}

/** Shows what one holder has, or everything again. */
function highlight(drawing, index, button) {
  const isOn = button.getAttribute("aria-pressed") !== "true";
  for (const other of document.querySelectorAll(".holders [aria-pressed]")) other.setAttribute("aria-pressed", "false");
  button.setAttribute("aria-pressed", String(isOn));
  drawing.classList.toggle("highlighting", isOn);
  for (const element of drawing.querySelectorAll(".device")) {
    element.classList.toggle("lit", isOn && element.dataset.holders.includes(` ${index} `));
  }
}
