"use strict";
const by = (id) => document.getElementById(id);
const EVERY_MS = 2000;
const state = { runs: [], chosen: [], picked: false, curves: {}, live: { metrics: {}, samples: [], alerts: [] } };

// -- numbers --------------------------------------------------------------------------------------------------------
function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(2)}G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(2)}M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)}k`;
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return size >= 0.01 || value === 0 ? String(Number(value.toPrecision(4))) : value.toExponential(1);
}
function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (Math.abs(value) >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}
function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value >= 7200) return `${(value / 3600).toFixed(1)} h`;
  if (value >= 120) return `${(value / 60).toFixed(1)} min`;
  if (value >= 1) return `${value.toPrecision(3)} s`;
  return value >= 1e-3 ? `${(value * 1e3).toPrecision(3)} ms` : value > 0 ? `${(value * 1e6).toPrecision(3)} µs` : "0 s";
}
const cores = (value) => value === null || value === undefined ? "–" : value.toFixed(2);
const percent = (value) => `${value >= 0 ? "+" : ""}${(100 * value).toFixed(0)} %`;
const day = (time) => time ? new Date(time * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) : "–";

// -- elements -------------------------------------------------------------------------------------------------------
function element(name, { text, kind, ...more } = {}, ...children) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  for (const [key, value] of Object.entries(more)) made[key] = value;
  made.append(...children);
  return made;
}
const cell = (text, kind = "") => element("td", { text, kind });
function table(target, heads, rows, empty) {
  if (!rows.length) {
    target.replaceChildren(element("tbody", {}, element("tr", {}, cell(empty, "empty"))));
    return;
  }
  const head = element("tr", {}, ...heads.map(([text, kind]) => element("th", { text, kind: kind || "" })));
  target.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
}

// -- the server -----------------------------------------------------------------------------------------------------
function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  return by("token").value.trim() || sessionStorage.getItem("token") || "";
}
async function ask(path) {
  const response = await fetch(path, { headers: { Authorization: `Bearer ${token()}` } });
  if (response.status === 401) by("token-line").hidden = false;
  if (!response.ok) throw new Error(response.status === 401 ? "the token is missing or wrong" : `error ${response.status}`);
  by("token-line").hidden = true;
  return response.json();
}

// -- figures of this process ----------------------------------------------------------------------------------------
function figure(name, labels = {}) {
  const row = (state.live.metrics[name]?.values || []).find((one) =>
    Object.entries(labels).every(([key, value]) => one.labels[key] === value));
  return row;
}

function showTiles() {
  const run = state.runs.find((one) => one.id === state.chosen[0]), curve = run && state.curves[run.id];
  const last = (points) => points && points.length ? points[points.length - 1][1] : null;
  const sample = state.live.samples[state.live.samples.length - 1] || {};
  const tiles = [];
  if (run) {
    tiles.push(["loss, mean of 20 steps", short(run.loss)], ["held-out loss", short(run.held_out)],
      ["tokens/s", short(last(curve?.tokens_per_s) ?? run.tokens_per_s)],
      ["step", `${run.step}${run.steps ? ` / ${run.steps}` : ""}`]);
  }
  const step = figure("morpho_train_step_seconds");
  if (step) tiles.push(["step p95, last minute", seconds(step.window.p95 ?? step.last.p95)]);
  const memory = sample.rss_bytes ?? last(curve?.rss_bytes);
  if (memory) tiles.push(["memory", bytes(memory)]);
  const threads = sample.threads ?? last(curve?.threads);
  if (threads) tiles.push(["threads", short(threads)]);
  if (sample.cpu_cores !== undefined) tiles.push(["cores in use", cores(sample.cpu_cores)]);
  for (const [number, gpu] of (sample.gpus || []).entries()) {
    tiles.push([`GPU ${number}, ${bytes(gpu.used_bytes)}`, `${Math.round(100 * (gpu.utilisation || 0))} %`]);
  }
  const running = figure("morpho_running"), made = figure("morpho_generated_tokens");
  if (running) tiles.push(["texts in work", short(running.value)], ["tokens made", short(made?.value)]);
  by("tiles").replaceChildren(...tiles.map(([name, value]) =>
    element("div", { kind: "tile" }, element("b", { text: value }), element("span", { text: name }))));
}

function bars(target, rows) {
  const total = rows.reduce((sum, [, value]) => sum + value, 0) || 1;
  const bar = element("div", { kind: "bar" });
  rows.forEach(([, value], number) => {
    const part = element("i", { kind: `f${number % 6}` });
    part.style.width = `${100 * value / total}%`;
    bar.append(part);
  });
  target.replaceChildren(bar, ...rows.map(([name, value], number) => element("div", { kind: "row" },
    element("span", { kind: `swatch f${number % 6}` }), element("span", { kind: "what", text: name }),
    element("span", { kind: "number", text: `${seconds(value)}, ${Math.round(100 * value / total)} %` }))));
}

function showCaches(curve) {
  let rows = Object.entries(curve?.caches || {}).map(([name, [hits, misses]]) => [name, hits, misses]);
  if (state.live.process) {
    const misses = Object.fromEntries((state.live.metrics.morpho_cache_misses?.values || []).map((row) => [row.labels.cache, row.value]));
    rows = (state.live.metrics.morpho_cache_hits?.values || []).map((row) => [row.labels.cache, row.value, misses[row.labels.cache] || 0]);
  }
  by("caches-figure").hidden = !rows.length;
  by("caches").replaceChildren(...rows.flatMap(([name, hits, misses]) => {
    const share = hits + misses ? hits / (hits + misses) : 0, bar = element("div", { kind: "bar" }), part = element("i", { kind: "f0" });
    part.style.width = `${100 * share}%`;
    bar.append(part);
    return [element("div", { kind: "row" }, element("span", { kind: "what", text: name }), element("span", { kind: "number",
      text: `${Math.round(100 * share)} % of ${short(hits + misses)}` })), bar];
  }));
}

// -- runs -----------------------------------------------------------------------------------------------------------
function differing(runs) {
  const names = new Set(runs.flatMap((run) => Object.keys(run.settings)));
  return [...names].filter((name) => new Set(runs.map((run) => JSON.stringify(run.settings[name]))).size > 1);
}

function showRuns() {
  const differ = differing(state.runs.filter((run) => state.chosen.includes(run.id)));
  by("runs-note").textContent = state.runs.length > 1 ? "tick those to compare" : "";
  table(by("runs"), [["run"], ["begun"], ["step", "number"], ["loss (20 steps)", "number"], ["held-out", "number"], ["best", "number"],
    ["tokens/s", "number"], ["trained", "number"], ["differs in"]], state.runs.map((run) => {
    const place = state.chosen.indexOf(run.id);
    const box = element("input", { type: "checkbox", checked: place >= 0, ariaLabel: `show ${run.name}` });
    box.addEventListener("change", () => {
      state.picked = true;
      state.chosen = box.checked ? [...state.chosen, run.id].slice(-6) : state.chosen.filter((id) => id !== run.id);
      refresh();
    });
    const name = element("td", { title: run.folder }, box, " ");
    if (place >= 0) name.append(element("span", { kind: `swatch f${place}` }));
    name.append(run.name);
    if (run.live) name.append(element("span", { kind: "live", text: "  live" }));
    const settings = place >= 0 ? differ.map((key) => `${key} ${run.settings[key] ?? "–"}`).join(", ") : "";
    return element("tr", {}, name, cell(day(run.begun)), cell(`${run.step}${run.steps ? ` / ${run.steps}` : ""}`, "number"),
      cell(short(run.loss), "number"), cell(short(run.held_out), "number"), cell(short(run.best_held_out), "number"),
      cell(short(run.tokens_per_s), "number"), cell(seconds(run.seconds), "number"), cell(settings));
  }), "no runs yet: morpho train --data FILE --out FOLDER makes one");
}

function showCurves() {
  const chosen = state.chosen.map((id, color) => ({ color, run: state.runs.find((run) => run.id === id), ...state.curves[id] }))
    .filter((one) => one.run && one.loss);
  const name = (one) => chosen.length > 1 ? one.run.name : "";
  drawChart(by("loss"), [...chosen.map((one) => ({ points: one.loss, color: one.color, name: name(one) })),
    ...chosen.map((one) => ({ points: one.held_out, color: one.color, dots: true, name: `${name(one)} held-out`.trim() }))],
    { formatX: (x) => `${short(x)}`, formatY: short });
  drawChart(by("speed"), chosen.map((one) => ({ points: one.tokens_per_s, color: one.color, name: name(one) })),
    { formatX: short, formatY: short, fromZero: true });
  const since = (points) => points.length ? points.map(([time, value]) => [time - points[0][0], value]) : [];
  drawChart(by("memory"), chosen.flatMap((one) => [{ points: since(one.rss_bytes), color: one.color, name: name(one) },
    { points: since(one.pool_bytes), color: one.color, dashed: true, name: `${name(one)} pool`.trim() }]),
    { formatX: seconds, formatY: bytes, fromZero: true, binary: true });
  const parts = Object.entries(chosen[0]?.parts || {});
  if (parts.length) bars(by("parts"), parts);
  else by("parts").replaceChildren(element("p", { kind: "empty", text: "nothing yet" }));
  showCaches(chosen[0]);
}

// -- this process, pipelines, predictions ---------------------------------------------------------------------------
function showLive() {
  const live = state.live, samples = live.samples.filter((one) => one.cpu_cores !== undefined);
  by("alerts").hidden = !live.alerts.length;
  by("alerts").textContent = live.alerts.map((one) => `${one.alert}${one.labels.length ? ` (${one.labels.join(", ")})` : ""}`).join("; ");
  by("cpu-figure").hidden = by("figures-section").hidden = !live.process;
  if (!live.process) return;
  const end = samples.length ? samples[samples.length - 1].time : 0;
  drawChart(by("cpu"), [{ points: samples.map((one) => [one.time - end, one.cpu_cores]), color: 0, name: "cores" },
    { points: samples.map((one) => [one.time - end, one.threads]), color: 2, dashed: true, name: "threads" }],
    { formatX: (x) => x < 0 ? `−${seconds(-x)}` : "now", formatY: short, fromZero: true });
  const wanted = by("filter").value.trim().toLowerCase(), rows = [];
  for (const [name, metric] of Object.entries(live.metrics)) {
    if (!name.includes(wanted)) continue;
    for (const row of metric.values) {
      const labels = Object.entries(row.labels).map(([key, value]) => `${key}=${value}`).join(", ");
      const value = "value" in row ? short(row.value) :
        `${short(row.count)} times; p50 ${short(row.last.p50)}, p95 ${short(row.last.p95)}, p99 ${short(row.last.p99)}`;
      rows.push(element("tr", { title: metric.help }, cell(name), cell(labels), cell(value, "number")));
    }
  }
  table(by("figures"), [["name"], ["of"], ["value", "number"]], rows, "no figure has that name");
  const engines = (live.metrics.morpho_running?.values || []).map((row) => row.labels);
  by("serving-section").hidden = !engines.length;
  const of = (name, labels) => short(figure(name, labels)?.value);
  table(by("serving"), [["model"], ["running", "number"], ["waiting", "number"], ["rows", "number"], ["KV pages", "number"],
    ["prompt tokens", "number"], ["made", "number"], ["from cache", "number"], ["errors", "number"]], engines.map((labels) =>
    element("tr", {}, cell(labels.model), ...["running", "waiting", "batch_size", "pages_used", "prompt_tokens", "generated_tokens",
      "prefix_hits", "errors"].map((name) => cell(of(`morpho_${name}`, labels), "number")))), "");
}

function showRanks(found) {
  const rows = found.ranks, steps = rows.map((row) => row.step_p50_s).filter((value) => value > 0);
  by("ranks-section").hidden = !rows.length;
  by("ranks-note").textContent = steps.length > 1 ? `slowest step ${(Math.max(...steps) / Math.min(...steps)).toFixed(2)} x the fastest` : "";
  table(by("ranks"), [["rank"], ["host"], ["process", "number"], ["cores", "number"], ["threads", "number"], ["memory", "number"],
    ["pool", "number"], ["loss", "number"], ["step p50, p95", "number"], ["collectives", "number"], ["cache hits", "number"],
    ["heard", "number"]], rows.map((row) => {
    const asked = (row.cache_hits || 0) + (row.cache_misses || 0);
    return element("tr", {}, cell(String(row.rank)), cell(row.host), cell(String(row.process ?? "–"), "number"), cell(cores(row.cpu_cores), "number"),
      cell(short(row.threads), "number"), cell(bytes(row.rss_bytes), "number"), cell(bytes(row.pool_bytes), "number"),
      cell(short(row.loss), "number"), cell(row.step_p50_s ? `${seconds(row.step_p50_s)}, ${seconds(row.step_p95_s)}` : "–", "number"),
      cell(row.collective_calls ? `${short(row.collective_calls)}, ${bytes(row.collective_bytes)}` : "–", "number"),
      cell(asked ? `${Math.round(100 * row.cache_hits / asked)} %` : "–", "number"),
      cell(row.late_s > 8 ? `${seconds(row.late_s)} ago` : "now", row.late_s > 8 ? "number warn" : "number"));
  }), "");
}

function showCluster(found) {
  if (!found.pipelines.length) {
    by("cluster").replaceChildren(element("p", { kind: "empty", text: "no pipeline runs here: morpho run MODEL --nodes N starts one" }));
    return;
  }
  by("cluster").replaceChildren(...found.pipelines.map((pipeline) => {
    const stages = element("div", { kind: "stages" });
    for (const stage of pipeline.stages) {
      const held = stage.layers && stage.layers.length, late = stage.late_s > 3;
      const lines = [held ? `layers [${stage.layers[0]}, ${stage.layers[1]})` : "in reserve", stage.doing || "",
        `${bytes(stage.memory_bytes || null)}, process ${stage.process}`, late ? `heard ${seconds(stage.late_s)} ago` : ""];
      stages.append(element("div", { kind: `stage${held ? "" : " spare"}${late ? " late" : ""}` }, element("b", { text: stage.node }),
        ...lines.filter(Boolean).map((text) => element("div", { text }))));
      const link = pipeline.links.find((one) => one.from === stage.node);
      if (link) {
        const sent = stage.sent_bytes ? `${bytes(stage.sent_bytes)} sent` : "";
        const each = link.bytes_per_token ? `${bytes(link.bytes_per_token)}/token` : "";
        stages.append(element("div", { kind: "link", text: [each, sent].filter(Boolean).join(" · ") }));
      }
    }
    return element("div", { kind: "pipeline" }, element("b", { text: pipeline.model }),
      element("small", { text: `  ${pipeline.texts} texts, epoch ${pipeline.epoch}` }), stages,
      ...pipeline.problems.map((text) => element("p", { kind: "warn", text })));
  }));
}

function showLedger(found) {
  const quantity = (row, name, format) => {
    const off = row.errors[name];
    const made = cell(row.measured[name] ? `${format(row.measured[name])} (${format(row.predicted[name])})` : "–", "number");
    if (off !== undefined) made.append(" ", element("span", { kind: Math.abs(off) > 0.2 ? "warn" : "", text: percent(off) }));
    return made;
  };
  table(by("ledger"), [["when"], ["model"], ["stages", "number"], ["texts", "number"], ["first token (predicted)", "number"],
    ["token (predicted)", "number"], ["tokens/s (predicted)", "number"]], found.rows.map((row) => element("tr", {}, cell(day(row.time)),
    cell(row.model), cell(String(row.stages.length), "number"), cell(short(row.streams), "number"), quantity(row, "first_token_s", seconds),
    quantity(row, "token_s", seconds), quantity(row, "tokens_per_s", short))), "no predictions yet: morpho run MODEL --nodes N makes one");
}

// -- again and again ------------------------------------------------------------------------------------------------
let busy = false;
async function refresh() {
  if (busy) return;
  busy = true;
  try {
    const [live, runs, cluster, ledger, ranks] = await Promise.all(["/api/live", "/api/runs", "/api/cluster", "/api/ledger",
      "/api/ranks"].map(ask));
    Object.assign(state, { live, runs: runs.runs });
    state.chosen = state.chosen.filter((id) => state.runs.some((run) => run.id === id));
    if (!state.picked && state.runs.length && !state.chosen.includes(state.runs[0].id)) state.chosen = [state.runs[0].id];
    const asked = state.chosen.map((id) => `run=${encodeURIComponent(id)}`).join("&");
    state.curves = state.chosen.length ? (await ask(`/api/curves?${asked}`)).curves : {};
    showTiles(); showRuns(); showCurves(); showLive(); showRanks(ranks); showCluster(cluster); showLedger(ledger);
    by("state").textContent = state.live.process ? `process ${state.live.process}` : state.runs.some((run) => run.live) ? "a run is live" : "watching";
    by("state").className = "state yes";
  } catch (error) {
    by("state").textContent = error instanceof TypeError ? "the dashboard has ended" : error.message;
    by("state").className = "state no";
  } finally {
    busy = false;
  }
}
by("token-line").addEventListener("submit", (event) => { event.preventDefault(); refresh(); });
by("filter").addEventListener("input", showLive);
addEventListener("resize", () => { showCurves(); showLive(); });
refresh();
setInterval(refresh, EVERY_MS);
