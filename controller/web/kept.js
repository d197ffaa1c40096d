// For whom devices of one machine are kept: the Reservations, and the table that tells them.

import { el, plain } from "./dom.js";
import { counted } from "./text.js";

export class Kept {
  #reservations;
  #devices;

  constructor({ reservations, devices }) {
    this.#reservations = reservations ?? [];
    this.#devices = devices;
  }

  /** `kept for train: Job ml/train, until …`; `null` where it is kept for nobody. */
  words(device) {
    const found = this.#reservations.find(({ name }) => name === device.keptFor);
    return found ? `kept for ${found.name} (${found.phase}): ${owners(found)}, ${found.lasts}` : null;
  }

  /** The Reservations, with what they keep here. */
  table() {
    if (this.#reservations.length === 0) return null;
    const head = el("tr", {}, ["Reservation", "Phase", "For", "Lasts", "Here"].map((word) => el("th", { scope: "col" }, word)));
    const rows = this.#reservations.map((reservation) => this.#row(reservation));
    return el("table", { class: "holders", id: "kept" }, el("caption", {}, "Kept for"), el("thead", {}, head), el("tbody", {}, rows));
  }

  #row(reservation) {
    const here = this.#devices.filter(({ keptFor }) => keptFor === reservation.name).length;
    const cells = [reservation.name, reservation.phase, owners(reservation), reservation.lasts, counted(here, "device")];
    return el("tr", {}, cells.map((cell) => el("td", {}, plain(cell))));
  }
}

const owners = ({ owners }) => (owners.length > 0 ? owners.join(", ") : "nobody");
