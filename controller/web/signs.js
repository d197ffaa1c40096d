// What stands for what: states, letters and colours. The words and signs are those of `hostler top`.

/** States of devices, in the order in which the server counts them. */
export const STATES = [
  { key: "free", word: "free", sign: ".", hint: "anybody can have it" },
  { key: "allocated", word: "allocated", sign: "#", hint: "a claim has it" },
  { key: "held", word: "held", sign: ":", hint: "it is kept for somebody who has not come yet" },
  { key: "unhealthy", word: "unhealthy", sign: "!", hint: "it does not work" },
  { key: "drained", word: "drained", sign: "~", hint: "out of service: nobody new gets it" },
  { key: "unknown", word: "unknown", sign: "?", hint: "its node does not report; it may be anything" },
];

/** The place of a state among the counts of a zone. */
export const placeOf = (key) => STATES.findIndex((state) => state.key === key);

/** How fresh the report of a node is, in the order of the server's numbers. */
export const REPORTS = [
  { key: "fresh", word: "reporting", hint: "the node's daemon reports" },
  { key: "stale", word: "node stale", hint: "two signs of life are missing: what is shown is as of then" },
  { key: "unknown", word: "node unknown", hint: "nothing was heard for so long that nothing can be said" },
  { key: "none", word: "node without report", hint: "no daemon of hostler reports: only slices are known" },
];

/** The order from the bottom of a column upwards; free is what is left above. */
export const STACK = ["allocated", "held", "drained", "unhealthy", "unknown"];

const COLOURS = 12;

/** The letter of the n-th holder: a–z, A–Z, then `*`, since nobody tells more apart. */
export function letterOf(index) {
  if (index < 26) return String.fromCharCode(97 + index);
  if (index < 52) return String.fromCharCode(65 + index - 26);
  return "*";
}

/** Which of the holders' colours the n-th one has. */
export const colourOf = (index) => index % COLOURS;
