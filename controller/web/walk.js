// Walking over a drawing with the arrow keys: one of its elements can be reached with Tab, the others from there.

/** Lets arrow keys go from one element that matches `selector` to the nearest one in their direction. */
export function walk(container, selector) {
  const first = container.querySelector(selector);
  if (first === null) return;
  first.tabIndex = 0;
  container.addEventListener("keydown", (event) => {
    const from = event.target.closest(selector);
    const to = from && next([...container.querySelectorAll(selector)], from, event.key);
    if (!to) return;
    event.preventDefault();
    from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
    to.scrollIntoView({ block: "nearest" });
  });
  container.addEventListener("focusin", (event) => {
    const now = event.target.closest(selector);
    for (const other of container.querySelectorAll(`${selector}[tabindex="0"]`)) if (other !== now) other.tabIndex = -1;
    if (now) now.tabIndex = 0;
  });
}

function next(all, from, key) {
  const place = all.indexOf(from);
  if (key === "ArrowRight") return all[place + 1];
  if (key === "ArrowLeft") return all[place - 1];
  if (key === "Home") return all[0];
  if (key === "End") return all[all.length - 1];
  if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
  return nearest(all, from, key === "ArrowDown" ? 1 : -1);
}

/** The element below or above that is nearest: rows first, then how far aside it is. */
function nearest(all, from, direction) {
  const here = from.getBoundingClientRect();
  const middle = here.left + here.width / 2;
  let [best, least] = [undefined, Infinity];
  for (const element of all) {
    const box = element.getBoundingClientRect();
    const down = direction > 0 ? box.top - here.bottom : here.top - box.bottom;
    const aside = Math.max(0, box.left - middle, middle - box.right);
    const distance = down * 4 + aside;
    if (down >= -1 && distance < least) [best, least] = [element, distance];
  }
  return best;
}
