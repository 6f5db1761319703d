// A conversation with one model, or the same one with two at once.

import { events, post, request, RefusedError } from "./api.js";
import { by, h } from "./dom.js";
import { count, dollars, milliseconds, rate } from "./format.js";

const panes = [0, 1].map((index) => ({ index, messages: [], chosen: "" }));
const STARTS = ["auto"]; // what is offered first where it is there
let asking = null; // ends the answers that are on their way

const element = (pane) => document.querySelector(`[data-pane="${pane.index}"]`);
const turns = (pane) => element(pane).querySelector(".turns");
const active = () => panes.filter((pane) => pane.index === 0 || by("compare").checked);

/** What can be asked, as the server says; what was chosen stays chosen. */
export async function offerModels() {
  const listed = (await (await request("v1/models")).json()).data;
  const names = listed.filter((model) => !model.tasks || model.tasks.includes("generate")).map((model) => model.id);
  names.sort((a, b) => STARTS.includes(b) - STARTS.includes(a));
  for (const pane of panes) {
    const select = by(`model-${pane.index}`);
    const chosen = pane.chosen || names[Math.min(pane.index, names.length - 1)] || "";
    select.replaceChildren(...names.map((name) => h("option", { value: name, selected: name === chosen }, name)));
  }
}

function shown(pane, role, text = "") {
  const body = h("p", { class: "text" }, text);
  const facts = h("p", { class: "soft facts-line" });
  const turn = h("article", { class: `turn ${role}`, "aria-label": role === "user" ? "You" : "Answer" }, body, facts);
  turns(pane).append(turn);
  turns(pane).scrollTop = turns(pane).scrollHeight;
  return { turn, body, facts };
}

function body(pane) {
  const model = by(`model-${pane.index}`).value;
  const content = { model, messages: pane.messages, stream: true, stream_options: { include_usage: true } };
  if (by("max-tokens").value) content.max_tokens = Number(by("max-tokens").value);
  if (by("temperature").value) content.temperature = Number(by("temperature").value);
  return content;
}

/** One answer, as it comes. Returns a sentence about it. */
async function answer(pane, signal) {
  const { turn, body: place, facts } = shown(pane, "assistant");
  const started = performance.now();
  const said = { first: null, thought: "", text: "", usage: null, headers: new Headers(), finish: "" };
  turn.classList.add("running");
  facts.textContent = "waiting for the first token";
  let failure = null;
  try {
    const response = await post("v1/chat/completions", body(pane), { signal });
    said.headers = response.headers;
    for await (const data of events(response)) {
      if (data === "[DONE]") break;
      take(JSON.parse(data), said, started);
      place.textContent = said.text;
      if (said.thought) thoughts(turn, said.thought);
      facts.textContent = summary(said, performance.now() - started);
      const list = turns(pane);
      if (list.scrollHeight - list.scrollTop - list.clientHeight < 80) list.scrollTop = list.scrollHeight;
    }
  } catch (error) {
    failure = error;
  }
  turn.classList.remove("running");
  const ms = performance.now() - started;
  if (said.text) pane.messages.push({ role: "assistant", content: said.text });
  facts.textContent = said.first === null ? "" : summary(said, ms);
  if (failure?.name === "AbortError") facts.append(h("b", {}, `${facts.textContent ? " · " : ""}stopped`));
  else if (failure) {
    turn.classList.add("failed");
    const told = failure instanceof RefusedError || failure.told;
    turn.append(h("p", { class: "bad" }, told ? failure.message : "The connection to the server broke."));
    return "The answer failed.";
  }
  return `The answer has ${count(said.usage?.completion_tokens ?? 0)} tokens, in ${milliseconds(ms)}.`;
}

function take(chunk, said, started) {
  if (chunk.error) throw Object.assign(new Error(chunk.error.message), { told: true });
  if (chunk.usage) said.usage = chunk.usage;
  const choice = chunk.choices?.[0];
  const text = choice?.delta?.content ?? "";
  const thought = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning ?? "";
  if ((text || thought) && said.first === null) said.first = performance.now() - started;
  said.text += text;
  said.thought += thought;
}

function thoughts(turn, text) {
  let box = turn.querySelector("details");
  if (!box) {
    box = h("details", {}, h("summary", {}, "Reasoning"), h("p", { class: "text soft" }));
    turn.prepend(box);
  }
  box.querySelector("p").textContent = text;
}

function summary(said, ms) {
  const { usage, headers } = said;
  const tier = headers.get("x-penstock-tier");
  const model = headers.get("x-penstock-model");
  const cache = headers.get("x-penstock-cache");
  const decoding = (ms - said.first) / 1000;
  return [
    tier && `tier ${tier}`, model && model !== tier && `model ${model}`, cache?.startsWith("hit") && `cache ${cache}`,
    said.first !== null && `first token ${milliseconds(said.first)}`, `${milliseconds(ms)} in all`,
    usage && `${count(usage.prompt_tokens)} → ${count(usage.completion_tokens)} tokens`,
    usage?.completion_tokens > 1 && decoding > 0.001 && `${rate((usage.completion_tokens - 1) / decoding)} tok/s`,
    usage?.cost !== undefined && usage?.cost !== null && dollars(usage.cost),
  ].filter(Boolean).join(" · ");
}

async function send(wantKey) {
  const text = by("prompt").value.trim();
  if (!text || asking) return;
  asking = new AbortController();
  by("stop").disabled = false;
  by("send").disabled = true;
  by("prompt").value = "";
  for (const pane of active()) {
    pane.messages.push({ role: "user", content: text });
    shown(pane, "user", text);
  }
  const sentences = await Promise.all(active().map((pane) => answer(pane, asking.signal)));
  by("playground-said").textContent = sentences.join(" ");
  asking = null;
  by("stop").disabled = true;
  by("send").disabled = false;
  offerModels().catch((error) => error.wantsKey && wantKey(error));
}

export function playground(wantKey) {
  by("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    send(wantKey);
  });
  by("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    by("ask").requestSubmit();
  });
  by("stop").addEventListener("click", () => asking?.abort());
  by("clear").addEventListener("click", () => {
    asking?.abort();
    for (const pane of panes) {
      pane.messages = [];
      turns(pane).replaceChildren();
    }
    by("prompt").focus();
  });
  by("compare").addEventListener("change", () => {
    const two = by("compare").checked;
    element(panes[1]).hidden = !two;
    by("panes").classList.toggle("two", two);
    panes[1].messages = []; // it has not heard what was said before
    turns(panes[1]).replaceChildren();
  });
  for (const pane of panes) {
    by(`model-${pane.index}`).addEventListener("change", (event) => (pane.chosen = event.target.value));
  }
}
