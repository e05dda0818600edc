// Asks the proxy. Its sentences are shown as they come: they say what is wrong and what would be
// right. A token, where the proxy wants one, is kept for this tab alone and sent as a header, so no
// other page can make a browser send it.

const TOKEN = "orderlane.token";

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => sessionStorage.setItem(TOKEN, text),
  clear: () => sessionStorage.removeItem(TOKEN),
};

/** An answer that is no success. */
export class ApiError extends Error {
  constructor(status, sentence, owners) {
    super(sentence);
    this.status = status;
    this.owners = owners ?? [];
  }
}

/** A path of the API: each name is encoded. */
export function path(...names) {
  return `api/${names.map(encodeURIComponent).join("/")}`;
}

/** Headers of every request. */
export function headers(more) {
  const shown = token.get();
  return { ...more, ...(shown ? { Authorization: `Bearer ${shown}` } : {}) };
}

async function ask(url, options) {
  let answer;
  try {
    answer = await fetch(url, { cache: "no-store", credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the proxy does not answer: it has ended, or the network is away");
  }
  await refuse(answer);
  return answer.json();
}

/** Throws what an answer says that is no success. */
export async function refuse(answer) {
  if (answer.ok) return;
  let said = {};
  try {
    said = await answer.json();
  } catch {
    // Whoever stands between answered, not the proxy.
  }
  if (answer.status === 401) window.dispatchEvent(new CustomEvent("token-wanted"));
  throw new ApiError(answer.status, said.error ?? `the answer was ${answer.status} ${answer.statusText}`, said.owners);
}

/** GET; *query* without what is null or empty. */
export function get(url, query, { signal } = {}) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") asked.set(name, value);
  }
  const text = asked.toString();
  return ask(text ? `${url}?${text}` : url, { headers: headers(), signal });
}

/** POST of a JSON object. */
export function post(url, body) {
  return ask(url, {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
  });
}
