// Requests to the proxy's API. Error texts of the proxy are shown unchanged. A token, if the proxy
// requires one, is kept for this tab only and sent as a header, so no other page can make the
// browser send it.

const TOKEN = "orderlane.token";

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => sessionStorage.setItem(TOKEN, text),
  clear: () => sessionStorage.removeItem(TOKEN),
};

/** An unsuccessful response. */
export class ApiError extends Error {
  constructor(status, sentence, owners) {
    super(sentence);
    this.status = status;
    this.owners = owners ?? [];
  }
}

/** Build a path of the API; each name is encoded. */
export function path(...names) {
  return `api/${names.map(encodeURIComponent).join("/")}`;
}

/** Return the headers of a request: the token and *more*. */
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
    throw new ApiError(0, "the proxy does not answer: it has stopped, or the network is down");
  }
  await refuse(answer);
  const found = await answer.json();
  // A list has no field for the names of brokers whose rows it lacks.
  if (Array.isArray(found)) found.silent = answer.headers.get("Orderlane-Unanswered") ?? "";
  return found;
}

/** Throw an ApiError for an unsuccessful response. */
export async function refuse(answer) {
  if (answer.ok) return;
  let said = {};
  try {
    said = await answer.json();
  } catch {
    // The response came from an intermediary, not from the proxy.
  }
  if (answer.status === 401) window.dispatchEvent(new CustomEvent("token-wanted"));
  throw new ApiError(answer.status, said.error ?? `the response was ${answer.status} ${answer.statusText}`, said.owners);
}

/** Send a GET; null and empty values of *query* are omitted. */
export function get(url, query, { signal } = {}) {
  return ask(withQuery(url, query), { headers: headers(), signal });
}

function withQuery(url, query) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") asked.set(name, value);
  }
  const text = asked.toString();
  return text ? `${url}?${text}` : url;
}

function send(method, url, body) {
  return ask(url, {
    method,
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
  });
}

/** Send a POST with a JSON object. */
export function post(url, body) {
  return send("POST", url, body);
}

/** Send a PUT with a JSON object. */
export function put(url, body) {
  return send("PUT", url, body);
}

/** Send a DELETE with parameters in *query*. */
export function remove(url, query) {
  return ask(withQuery(url, query), { method: "DELETE", headers: headers() });
}
