// Asking the server: the key, errors as sentences, and streams of server-sent events.

const KEY = "penstock.key";

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

export class RefusedError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }

  /** Whether another key could help. */
  get wantsKey() {
    return this.status === 401 || this.code === "admin_only";
  }
}

/** The response, or a RefusedError with the server's own sentence. */
export async function request(path, options = {}) {
  const headers = { ...options.headers };
  // What a header cannot carry, as mails and chats make of dashes and blanks, was never a key.
  if (/[^\x21-\x7e]/.test(key.get())) {
    throw new RefusedError(401, "The key has characters that no key has; copy it from where it was made.", "invalid_api_key");
  }
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  if (options.body) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // An answer that is not the server's own, as a proxy gives it.
  }
  const message = error.message ?? `The server answered with status ${response.status}.`;
  throw new RefusedError(response.status, message, error.code);
}

export const post = (path, content, options = {}) =>
  request(path, { ...options, method: "POST", body: JSON.stringify(content) });

/** The data of each event of a stream, as text. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      held += value;
      const blocks = held.split(/\r?\n\r?\n/);
      held = blocks.pop();
      for (const block of blocks) {
        const data = block.split(/\r?\n/).filter((line) => line.startsWith("data:"));
        if (data.length) yield data.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
