// Elements. Whatever comes from outside goes through here, and is text: nothing on this page makes HTML out of a string.

/** An element with properties and attributes, and children: elements, texts, nothing. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) set(element, name, value);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function set(element, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name === "class") element.className = value;
  else if (name === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
  else if (name === "data") Object.assign(element.dataset, value);
  else if (name === "vars") for (const [key, of] of Object.entries(value)) element.style.setProperty(key, of);
  else element.setAttribute(name, value === true ? "" : value);
}

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** Text from outside without what reorders or hides other text: names can be hostile. */
export function plain(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, "\ufffd");
}

/** A bar of shares, with the same numbers in words for whoever does not see it. */
export function bar(shares, label) {
  const whole = shares.reduce((sum, [, amount]) => sum + amount, 0);
  const parts = shares.filter(([, amount]) => amount > 0).map(([kind, amount]) =>
    el("span", { class: `share ${kind}`, vars: { "--share": `${(100 * amount) / Math.max(whole, 1)}%` } }));
  return el("span", { class: "bar", role: "img", "aria-label": label }, parts);
}

/** Tells screen readers, politely, and nobody else. */
export function announce(words) {
  byId("announcer").textContent = words;
}
