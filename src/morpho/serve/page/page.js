"use strict";
const by = (id) => document.getElementById(id);
const SETTINGS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const state = { messages: [], running: null, models: [], history: [] };

// -- the server -----------------------------------------------------------------------------------------------------
function headers() {
  const token = by("token").value.trim();
  return { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
}

async function ask(path, options = {}) {
  const response = await fetch(path, { ...options, headers: headers() });
  if (response.status === 401) by("token-line").hidden = false;
  if (!response.ok) {
    let told = `${response.status} ${response.statusText}`;
    try { told = (await response.json()).error.message; } catch { /* not in OpenAI's form */ }
    throw new Error(told);
  }
  return response;
}

async function* chunks(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the connection ended before the answer did");
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk;
    }
  }
}

// -- the conversation -----------------------------------------------------------------------------------------------
function turn(role) {
  by("empty")?.remove();
  const made = document.createElement("article");
  made.className = `turn ${role}`;
  const who = document.createElement("div"), said = document.createElement("div"), foot = document.createElement("div");
  who.className = "who";
  who.textContent = role === "user" ? "You" : by("model").value;
  said.className = "said";
  foot.className = "foot";
  made.append(who, said, foot);
  by("chat").append(made);
  scroll(true);
  return { made, said, foot };
}

function scroll(always = false) {
  const chat = by("chat");
  if (always || chat.scrollHeight - chat.scrollTop - chat.clientHeight < 120) chat.scrollTop = chat.scrollHeight;
}

function body(messages) {
  const model = by("model").value, known = state.models.find((each) => each.id === model);
  const found = { model, stream: true, stream_options: { include_usage: true } };
  for (const name of SETTINGS) {
    const value = by(name).value.trim();
    if (value !== "") found[name] = Number(value);
  }
  if (known && known.chat === false) {  // a model without a chat template goes on with the text
    found.prompt = messages.map((message) => message.content).join("\n\n");
    return ["/v1/completions", found];
  }
  const system = by("system").value.trim();
  found.messages = system ? [{ role: "system", content: system }, ...messages] : messages;
  return ["/v1/chat/completions", found];
}

async function answer() {
  const { made, said, foot } = turn("assistant");
  const stop = new AbortController();
  const run = { text: "", tokens: 0, first: 0, begun: performance.now(), end: "" };
  const sentTo = by("model").value;
  const conversation = state.messages;  // "New chat" begins another one
  state.running = stop;
  busy(true);
  said.classList.add("cursor");
  let drawn = false;
  const draw = () => {
    if (!drawn) {
      drawn = true;
      requestAnimationFrame(() => {
        drawn = false;
        if (run.done) return;  // all is drawn, and more stands there by now
        Markdown.show(said, run.text);
        foot.textContent = speed(run);
        scroll();
      });
    }
  };
  try {
    const [path, sent] = body(conversation);
    const response = await ask(path, { method: "POST", body: JSON.stringify(sent), signal: stop.signal });
    for await (const chunk of chunks(response)) {
      if (chunk.usage) run.tokens = chunk.usage.completion_tokens;
      const choice = chunk.choices[0];
      const text = choice?.delta?.content ?? choice?.text ?? "";
      if (choice?.finish_reason) run.end = choice.finish_reason;
      if (!text) continue;
      run.first ||= performance.now();
      if (!chunk.usage) run.tokens += 1;
      run.text += text;
      draw();
    }
  } catch (error) {
    run.end = error.name === "AbortError" ? "stopped" : "";
    if (!run.end) {
      const wrong = document.createElement("p");
      wrong.className = "wrong";
      wrong.textContent = error.message;
      run.wrong = wrong;
    }
  }
  run.done = true;
  said.classList.remove("cursor");
  Markdown.show(said, run.text);
  foot.textContent = speed(run);
  if (run.wrong) said.append(run.wrong);
  conversation.push({ role: "assistant", content: run.text });
  if (conversation === state.messages) retry(made, foot);
  if (!state.models.find((each) => each.id === sentTo)?.loaded) begin();  // what it can do is known now
  if (state.running === stop) {
    state.running = null;
    busy(false);
  }
  scroll();
}

function speed(run) {
  const now = performance.now(), parts = [];
  if (run.first) parts.push(`first token ${((run.first - run.begun) / 1000).toFixed(2)} s`);
  if (run.tokens > 1 && now > run.first) {
    run.rate = state.running && run.end === "" ? (run.tokens - 1) / ((now - run.first) / 1000) : run.rate;
    if (run.rate) parts.push(`${run.rate.toFixed(1)} tokens/s`);
  }
  if (run.tokens) parts.push(`${run.tokens} tokens`);
  if (run.end === "length") parts.push("cut at the limit");
  if (run.end === "stopped") parts.push("stopped");
  return parts.join(" · ");
}

function retry(made, foot) {
  for (const old of document.querySelectorAll(".again")) old.remove();
  const again = document.createElement("button");
  again.type = "button";
  again.className = "again";
  again.textContent = "Retry";
  again.addEventListener("click", () => {
    if (state.running) return;
    made.remove();
    state.messages.pop();
    answer();
  });
  foot.append(again);
}

function busy(now) {
  by("send").hidden = now;
  by("stop").hidden = !now;
}

function send() {
  const text = by("text").value.trim();
  if (!text || state.running) return;
  by("text").value = "";
  grow();
  turn("user").said.textContent = text;
  state.messages.push({ role: "user", content: text });
  answer();
}

function grow() {
  const text = by("text");
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight + 2}px`;
}

// -- the live view --------------------------------------------------------------------------------------------------
function row(list, name, value) {
  const term = document.createElement("dt"), said = document.createElement("dd");
  term.textContent = name;
  said.textContent = value;
  list.append(term, said);
}

function show(live) {
  const ready = by("ready");
  ready.textContent = live.ready ? "ready" : "not ready";
  ready.className = `ready ${live.ready ? "yes" : "no"}`;
  const engine = live.engines.find((each) => each.model === by("model").value) ?? live.engines[0];
  const list = by("live");
  list.replaceChildren();
  if (!engine) return;
  const last = state.history.at(-1), seconds = last ? live.uptime_s - last.at : 0;
  const rate = seconds > 0 ? Math.max(0, (engine.generated_tokens - last.tokens) / seconds) : 0;
  row(list, "Rows of the batch", engine.running ? engine.batch_size : 0);
  row(list, "Running", engine.running);
  row(list, "Queue", engine.waiting);
  row(list, "Tokens/s", rate.toFixed(1));
  const paged = engine.pages_total > 0;
  if (paged) row(list, "KV pages", `${engine.pages_used} / ${engine.pages_total}`);
  if (paged) row(list, "Prefix hits", `${engine.prefix_hits} tokens`);
  row(list, "Made", `${engine.generated_tokens} tokens`);
  showStages(engine.stages ?? []);
  for (const each of document.querySelectorAll(".paged")) each.hidden = !paged;
  const total = Math.max(engine.pages_total, 1);
  by("used").style.width = `${(100 * engine.pages_used) / total}%`;
  by("cached").style.width = `${(100 * engine.pages_cached) / total}%`;
  state.history.push({ at: live.uptime_s, tokens: engine.generated_tokens, rows: engine.running ? engine.batch_size : 0 });
  state.history = state.history.slice(-60);
  const most = Math.max(4, ...state.history.map((each) => each.rows));
  by("line").setAttribute("points", state.history.map((each, place) =>
    `${(240 * (60 - state.history.length + place)) / 59},${46 - (44 * each.rows) / most}`).join(" "));
}

function showStages(stages) {
  by("stages").replaceChildren();
  by("stage-view").hidden = !stages.length;
  for (const stage of stages) {
    const [from, to] = stage.layers;
    const held = stage.layers.length ? `layers ${from} to ${to - 1}` : "in reserve";
    row(by("stages"), stage.node, stage.alive ? `${held}, ${stage.streams} texts` : "gone");
    by("stages").lastChild.className = stage.alive ? "" : "gone";
    by("stages").lastChild.title = stage.doing || "";
  }
}

async function look() {
  try { if (!document.hidden) show(await (await ask("/live")).json()); } catch {
    by("ready").textContent = "no connection";
    by("ready").className = "ready no";
  }
  setTimeout(look, 1000);
}

async function begin() {
  try {
    state.models = (await (await ask("/v1/models")).json()).data.filter((model) => !model.embeddings);
    const chosen = by("model").value;
    by("model").replaceChildren(...state.models.map((model) => new Option(model.id, model.id)));
    if (chosen) by("model").value = chosen;
  } catch { setTimeout(begin, 2000); }
}

by("ask").addEventListener("submit", (event) => { event.preventDefault(); send(); });
by("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
by("text").addEventListener("input", grow);
by("stop").addEventListener("click", () => state.running?.abort());
by("new").addEventListener("click", () => {
  state.running?.abort();
  state.running = null;
  busy(false);
  state.messages = [];
  by("chat").replaceChildren();
});
by("open").addEventListener("click", () => {
  const open = document.body.classList.toggle("side");
  by("open").setAttribute("aria-expanded", String(open));
  by("open").textContent = open ? "Chat" : "Settings";
});
by("token").addEventListener("change", begin);
by("token-line").addEventListener("submit", (event) => { event.preventDefault(); begin(); });
begin();
look();
by("text").focus();
