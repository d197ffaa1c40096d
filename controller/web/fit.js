// "Would it fit": a claim, a template or a pod is pasted, and every node answers.

import { ApiError, fits } from "./api.js";
import { announce, byId, el, plain } from "./dom.js";
import { counted, grouped } from "./text.js";

/** The answer holds for the moment; when the cluster changes it is asked again, but not more often than this. */
const AGAIN_MS = 5_000;
/** Reasons and names that are shown; the rest is counted. */
const MOST_NAMES = 12;

const VERDICTS = {
  fits: { word: "It fits", glyph: "✓" },
  undecided: { word: "It may fit", glyph: "≈" },
  "does-not-fit": { word: "It fits nowhere", glyph: "✗" },
};

export class FitPanel {
  #asked = null;
  #timer = null;
  #asking = null;
  #onAnswer;
  #onOpenNode;

  constructor({ onAnswer, onOpenNode }) {
    this.#onAnswer = onAnswer;
    this.#onOpenNode = onOpenNode;
    byId("fit-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask(byId("fit-text").value, true);
    });
    byId("fit-text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("fit-form").requestSubmit();
    });
    byId("fit-clear").addEventListener("click", () => this.clear());
  }

  /** Something in the cluster is not as it was. */
  changed() {
    if (this.#asked === null || this.#timer !== null) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      if (this.#asked !== null) this.#ask(this.#asked, false);
    }, AGAIN_MS);
  }

  /** Nothing is asked any more. */
  clear() {
    this.#asked = null;
    this.#asking?.abort();
    byId("fit-answer").replaceChildren();
    this.#onAnswer(null, null);
  }

  async #ask(text, isNew) {
    if (text.trim() === "") return this.#problem(new ApiError(0, "paste a ResourceClaim, a ResourceClaimTemplate or a Pod first"));
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    byId("fit-ask").setAttribute("aria-busy", String(isNew));
    try {
      const answer = await fits(text, asking.signal);
      this.#asked = text;
      this.#show(answer, isNew);
    } catch (error) {
      if (error.name !== "AbortError") this.#problem(error);
    } finally {
      byId("fit-ask").setAttribute("aria-busy", "false");
    }
  }

  #problem(error) {
    this.#asked = null;
    const said = error instanceof ApiError ? error.message : "the answer cannot be read";
    byId("fit-answer").replaceChildren(el("p", { class: "problem", role: "alert" }, plain(said)));
    this.#onAnswer(null, null);
  }

  #show(answer, isNew) {
    const sets = answer.podSets;
    byId("fit-answer").replaceChildren(...sets.map((set) => this.#set(set)));
    const first = sets[0];
    this.#onAnswer(first ? new Set(first.room) : null, null);
    if (isNew && first) announce(headline(first));
  }

  #set(set) {
    const { glyph } = VERDICTS[set.verdict] ?? VERDICTS.undecided;
    const title = el("h3", {}, el("span", { class: `verdict ${set.verdict}`, "aria-hidden": "true" }, glyph), ` ${headline(set)}`);
    const of = el("p", { class: "muted" }, plain(`${set.name} in ${set.namespace}`));
    const room = set.room.length === 0 ? null : el("p", { class: "room" }, this.#names(set.room));
    const reasons = set.refusals.map((refusal) => this.#reason(set, refusal));
    const asides = [...(set.unsupported ?? []).map((what) => `not looked at: ${what}`), ...(set.notes ?? [])];
    return el("section", { class: "fit-set" }, title, of,
      set.problem && el("p", { class: "problem" }, plain(set.problem)), room,
      reasons.length > 0 && el("h4", {}, set.room.length > 0 ? "Why not elsewhere" : "Why not"), reasons.length > 0 && el("ul", { class: "reasons" }, reasons),
      asides.length > 0 && el("ul", { class: "notes" }, asides.map((aside) => el("li", {}, plain(aside)))));
  }

  #names(names) {
    const link = (name) => el("button", { type: "button", class: "link", on: { click: () => this.#onOpenNode(name) } }, plain(name));
    const links = names.slice(0, MOST_NAMES).flatMap((name, index) => (index === 0 ? [link(name)] : [", ", link(name)]));
    return names.length > MOST_NAMES ? [...links, ` and ${grouped(names.length - MOST_NAMES)} more`] : links;
  }

  /** A reason shows its nodes when it is pressed, and all that fit again when it is pressed once more. */
  #reason(set, { reason, nodes }) {
    const press = (event) => {
      const isOn = event.currentTarget.getAttribute("aria-pressed") !== "true";
      for (const other of document.querySelectorAll(".reasons [aria-pressed]")) other.setAttribute("aria-pressed", "false");
      event.currentTarget.setAttribute("aria-pressed", String(isOn));
      this.#onAnswer(new Set(set.room), isOn ? new Set(nodes) : null);
    };
    return el("li", {}, el("button", { type: "button", class: "reason", "aria-pressed": "false", on: { click: press } },
      el("b", {}, counted(nodes.length, "node")), ` ${plain(reason)}`));
  }
}

function headline(set) {
  const { word } = VERDICTS[set.verdict] ?? VERDICTS.undecided;
  const all = set.room.length + set.refusals.reduce((sum, { nodes }) => sum + nodes.length, 0);
  return set.room.length === 0 ? word : `${word} on ${grouped(set.room.length)} of ${counted(all, "node")}`;
}
