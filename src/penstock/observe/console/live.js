// The state of the server, each second, for as long as the page is looked at. It comes back by itself.

import { events, request, RefusedError } from "./api.js";

const SILENT_MS = 6000; // a server that says nothing for so long is gone, whatever the connection says
const LONGEST_PAUSE_MS = 10000;
const UNSEEN_MS = 30000; // a page that nobody looks at lets go after this

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const seen = () =>
  new Promise((resolve) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    look();
  });

/** Calls `on.state(snapshot)` each second, `on.connection(word, error)` as that changes, and awaits
 * `on.key(error)` when the server wants another key. Never returns. */
export async function follow(on) {
  let pause = 500;
  for (;;) {
    await seen();
    const ending = new AbortController();
    let quiet;
    const heard = () => {
      clearTimeout(quiet);
      quiet = setTimeout(() => ending.abort(), SILENT_MS);
    };
    let hiding;
    const hidden = () => {
      clearTimeout(hiding);
      if (document.hidden) hiding = setTimeout(() => ending.abort(), UNSEEN_MS);
    };
    document.addEventListener("visibilitychange", hidden);
    let failed = null;
    try {
      heard();
      const response = await request("console/events", { signal: ending.signal });
      for await (const data of events(response)) {
        heard();
        pause = 500;
        on.connection("live");
        const snapshot = JSON.parse(data);
        try {
          on.state(snapshot);
        } catch (error) {
          reportError(error); // a fault of the page is no fault of the connection
        }
      }
    } catch (error) {
      failed = error;
    } finally {
      clearTimeout(quiet);
      clearTimeout(hiding);
      document.removeEventListener("visibilitychange", hidden);
    }
    if (failed instanceof RefusedError && failed.wantsKey) {
      on.connection("locked", failed);
      await on.key(failed);
      continue;
    }
    on.connection("reconnecting", failed);
    await wait(pause * (0.75 + Math.random() / 2));
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
  }
}
