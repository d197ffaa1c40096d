// Asking for a token, and saying how one is made.

import { byId, plain } from "./dom.js";

/** Calls `onToken` with what was typed, and with whether this tab shall keep it. */
export function startSignIn(onToken) {
  byId("sign-in-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const field = byId("token");
    const token = field.value;
    if (token.trim() === "") return;
    field.value = "";
    onToken(token, byId("keep").checked);
  });
}

/** Shows the form, with what went wrong before. */
export function askForToken(error) {
  byId("sign-in-problem").hidden = error === null;
  byId("sign-in-problem").textContent = error === null ? "" : plain(words(error));
  byId("token").focus();
}

function words(error) {
  if (error.status === 401) return "The API server does not know this token, or not any more.";
  return error.message;
}
