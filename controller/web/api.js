// Questions to the controller. The token is in memory, and in this tab's storage only where somebody wants it there.

const KEPT = "hostler-token";

/** What the controller said instead of an answer. */
export class ApiError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let token = sessionStorage.getItem(KEPT);

/** Whether there is a token to ask with. */
export const hasToken = () => token !== null;

/** Asks with this token from now on. */
export function useToken(given, isKept) {
  token = given.trim();
  if (isKept) sessionStorage.setItem(KEPT, token);
  else sessionStorage.removeItem(KEPT);
}

/** Forgets the token, everywhere. */
export function forgetToken() {
  token = null;
  sessionStorage.removeItem(KEPT);
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError" || error instanceof TypeError === false) throw error;
    throw new ApiError(0, "the controller does not answer", "unreachable");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  throw new ApiError(response.status, told?.error?.message ?? `the controller answered ${response.status}`, told?.error?.code);
}

const json = async (path, options) => (await ask(path, options)).json();

/** Filters as a query; what is empty is left out. */
export function query(filter) {
  const used = Object.entries(filter).filter(([, value]) => value);
  return used.length === 0 ? "" : `?${new URLSearchParams(used)}`;
}

export const access = () => json("/v1/access");
export const grid = (filter, signal) => json(`/v1/nodes${query(filter)}`, { signal });
export const machine = (name, signal) => json(`/v1/nodes/${encodeURIComponent(name)}`, { signal });
export const availability = (by, signal) => json(`/v1/availability?by=${by}`, { signal });
/** Devices behind switches: `devices` is all, busy or none, and `pool` one of the pools. */
export const fabric = (asked, signal) => json(`/v1/fabric${query(asked)}`, { signal });

/** A stream of changes since `revision`. */
export function changes(filter, revision, signal) {
  const headers = { Accept: "text/event-stream", ...(revision && { "Last-Event-ID": revision }) };
  return ask(`/v1/changes${query(filter)}`, { headers, signal });
}

/** Whether what is pasted would fit, on each node. */
export function fits(manifests, signal) {
  return json("/v1/fits", { method: "POST", headers: { "Content-Type": "application/yaml" }, body: manifests, signal });
}
