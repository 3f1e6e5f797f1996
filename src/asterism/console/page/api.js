// Requests to the console. The token is kept for this tab only, and is sent in a header, so no other site can use it.

const KEY = "asterism-token";
let token = null;
try {
  token = sessionStorage.getItem(KEY);
} catch {
  // Storage may be disabled; the token is then asked for again after a reload.
}

export class RequestError extends Error {
  constructor(status, answer) {
    super(answer?.error?.message ?? `the console answered with status ${status}`);
    this.status = status;
    this.detail = answer?.error?.detail;
    this.hint = answer?.error?.hint;
    this.answer = answer;
  }
}

export function setToken(value) {
  token = value;
  try {
    if (value === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, value);
  } catch {
    // See above.
  }
}

async function request(method, path, body, etag, signal, isFile = false) {
  const headers = {};
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  if (etag) headers["If-None-Match"] = etag;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError(0, { error: { message: "the console cannot be reached", hint: "is `asterism rules serve` still running?" } });
  }
  if (response.status === 304) return { answer: null, etag };
  let answer = null;
  try {
    answer = isFile && response.ok ? await response.blob() : await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (response.ok) throw new RequestError(0, { error: { message: "the answer of the console was cut off", hint: "try again" } });
    // Of an error, the status says enough.
  }
  if (!response.ok) throw new RequestError(response.status, answer);
  return { answer, etag: response.headers.get("ETag") };
}

export async function get(path) {
  return (await request("GET", path)).answer;
}

export function getIfChanged(path, etag) {
  return request("GET", path, undefined, etag);
}

export async function post(path, body, signal) {
  return (await request("POST", path, body, null, signal)).answer;
}

// Saves the response as a file.
export async function download(path, body, name) {
  const { answer } = await request("POST", path, body, null, null, true);
  const address = URL.createObjectURL(answer);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}
