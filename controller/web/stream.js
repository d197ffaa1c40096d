// Server-sent events over fetch: EventSource cannot carry a token. Resumes where it was, and asks ever more rarely.

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;
/** The server says something every 15 s; a connection that is silent for three times as long is none. */
const SILENCE_MS = 45_000;

/** Takes events out of a text that comes in pieces, as the standard says. Pure but for what it has not used yet. */
export class EventParser {
  #rest = "";
  #event = { type: "message", data: [], id: undefined };

  /** The events that are complete with this piece. */
  push(piece) {
    const lines = (this.#rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    return lines.map((line) => this.#line(line)).filter((event) => event !== null);
  }

  #line(line) {
    if (line === "") return this.#end();
    const colon = line.indexOf(":");
    const [field, rest] = colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1)];
    const value = rest.startsWith(" ") ? rest.slice(1) : rest;
    if (field === "event") this.#event.type = value;
    else if (field === "data") this.#event.data.push(value);
    else if (field === "id") this.#event.id = value;
    return null;
  }

  #end() {
    const { type, data, id } = this.#event;
    this.#event = { type: "message", data: [], id: undefined };
    return data.length === 0 ? null : { type, id, data: data.join("\n") };
  }
}

/** How long to wait before the n-th try, with some chance in it: not everybody shall come back at once. */
export function pauseBefore(attempt, chance) {
  const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempt);
  return longest / 2 + (longest / 2) * chance;
}

/**
 * Follows a stream until it is aborted. `open(resumeFrom, signal)` gives a response, or throws; `onEvent` gets what comes,
 * `onState` hears "live" or "waiting", and may end it all by giving false for an error.
 */
export async function follow({ open, onEvent, onState, signal, from }) {
  let [resumeFrom, attempt] = [from, 0];
  while (!signal.aborted) {
    let failure = null;
    try {
      for await (const event of eventsOf(open, resumeFrom, signal, () => onState("live", null))) {
        attempt = 0;
        if (event.id !== undefined) resumeFrom = event.id;
        onEvent(event.type, JSON.parse(event.data));
      }
    } catch (error) {
      failure = error;
    }
    if (signal.aborted || onState("waiting", failure) === false) return;
    await pause(pauseBefore(attempt, Math.random()), signal);
    attempt += 1;
  }
}

async function* eventsOf(open, resumeFrom, signal, onOpen) {
  const silence = new AbortController();
  const either = AbortSignal.any([signal, silence.signal]);
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const response = await open(resumeFrom, either);
    onOpen();
    const parser = new EventParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      yield* parser.push(read.value);
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, milliseconds);
    // Whoever comes back to the page, or to the network, does not wait.
    function done() {
      clearTimeout(timer);
      for (const [target, event] of WAKERS) target.removeEventListener(event, done);
      signal.removeEventListener("abort", done);
      resolve();
    }
    for (const [target, event] of WAKERS) target.addEventListener(event, done);
    signal.addEventListener("abort", done);
  });
}

const WAKERS = typeof window === "undefined" ? [] : [[window, "online"], [document, "visibilitychange"]];
