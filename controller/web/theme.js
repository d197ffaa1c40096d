// Light, dark, or as the system has it. What somebody chose is remembered: it says nothing about anybody.

import { byId } from "./dom.js";

const KEPT = "hostler-theme";
const CHOICES = ["auto", "light", "dark"];
const WORDS = { auto: "as the system", light: "light", dark: "dark" };
const GLYPHS = { auto: "◐", light: "☀", dark: "☾" };

const listeners = [];
const system = matchMedia("(prefers-color-scheme: dark)");

/** Hears when colours have changed: what is drawn has to be drawn again. */
export const onTheme = (listener) => listeners.push(listener);

export function startTheme() {
  apply(kept());
  byId("theme").addEventListener("click", () => {
    const next = CHOICES[(CHOICES.indexOf(kept()) + 1) % CHOICES.length];
    localStorage.setItem(KEPT, next);
    apply(next);
  });
  for (const query of [system, matchMedia("(forced-colors: active)")]) {
    query.addEventListener("change", () => apply(kept()));
  }
}

function kept() {
  const choice = localStorage.getItem(KEPT);
  return CHOICES.includes(choice) ? choice : "auto";
}

function apply(choice) {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  const button = byId("theme");
  button.textContent = GLYPHS[choice];
  button.setAttribute("aria-label", `colours: ${WORDS[choice]}`);
  button.title = `colours: ${WORDS[choice]}`;
  for (const listener of listeners) listener();
}
