// What stands for what: states, letters and colours. The words and signs are those of `hostler top`.

/** States of devices, in the order in which the server counts them. */
export const STATES = [
  { key: "free", word: "free", sign: ".", hint: "anybody can have it, or a part of it" },
  { key: "allocated", word: "allocated", sign: "#", hint: "claims have it, or so much that nobody else can have a part" },
  { key: "held", word: "held", sign: "+", hint: "kept for somebody who does not have it yet" },
  { key: "unhealthy", word: "unhealthy", sign: "!", hint: "it does not work" },
  { key: "drained", word: "drained", sign: "~", hint: "out of service: nobody new gets it" },
  { key: "unknown", word: "unknown", sign: "?", hint: "it cannot be said whether it works, or is there at all" },
  { key: "blocked", word: "blocked", sign: "|", hint: "nobody has it, and it cannot be had for what others have" },
  { key: "others", word: "of others", sign: " ", hint: "not of the namespace that is chosen" },
];

/** The place of a state among the counts of a zone. */
export const placeOf = (key) => STATES.findIndex((state) => state.key === key);

/** How fresh the report of a node is, in the order of the server's numbers. */
export const REPORTS = [
  { key: "fresh", word: "reporting", hint: "the node's daemon reports" },
  { key: "stale", word: "node stale", hint: "two signs of life are missing: what is shown is as of then" },
  { key: "unknown", word: "node unknown", hint: "nothing was heard for so long that nothing can be said" },
  { key: "none", word: "node without report", hint: "no daemon of hostler reports: only slices are known" },
  { key: "gone", word: "node gone", hint: "there is no such node any more, and somebody still speaks of its devices" },
];

/** What else is said of a node; each is a bit of its number. */
export const FLAGS = [
  { key: "not-ready", bit: 8, word: "node not ready", hint: "its kubelet does not say that it is" },
  { key: "cordoned", bit: 16, word: "node cordoned", hint: "no new pod comes there" },
];

/** The order from the bottom of a column upwards; free is what is left above. */
export const STACK = ["allocated", "held", "drained", "unhealthy", "unknown", "blocked"];

const COLOURS = 12;

/** The letter of the n-th holder: a–z, A–Z, then `*`, since nobody tells more apart. */
export function letterOf(index) {
  if (index < 26) return String.fromCharCode(97 + index);
  if (index < 52) return String.fromCharCode(65 + index - 26);
  return "*";
}

/** Which of the holders' colours the n-th one has. */
export const colourOf = (index) => index % COLOURS;
