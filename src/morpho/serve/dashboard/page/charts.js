"use strict";
// Line charts in SVG. A series is { points: [[x, y], ...], color: 0-5, dashed, dots, name }.
const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Round numbers that cut an interval into about `count` pieces; powers of two for bytes.
function ticks(low, high, count, binary) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = binary ? 2 ** Math.ceil(Math.log2(rough)) : [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found;
}

function extent(series, place) {
  let low = Infinity, high = -Infinity;
  for (const one of series) for (const point of one.points) {
    const value = point[place];
    if (value !== null && Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  }
  if (low === high) { const more = Math.abs(low) * 0.05 || 1; low -= more; high += more; }
  return [low, high];
}

function drawChart(target, series, { formatX, formatY, fromZero = false, binary = false }) {
  target.replaceChildren();
  const width = target.clientWidth || 400, height = target.clientHeight || 200;
  target.setAttribute("viewBox", `0 0 ${width} ${height}`);
  series = series.filter((one) => one.points.length);
  if (!series.length) {
    target.append(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing yet"));
    return;
  }
  const [x0, x1] = extent(series, 0);
  let [y0, y1] = extent(series, 1);
  if (fromZero) { y0 = Math.min(0, y0); y1 += (y1 - y0) * 0.06; }
  const left = 58, right = width - 8, top = 8, bottom = height - 20;
  const px = (x) => left + (x - x0) / (x1 - x0) * (right - left), py = (y) => bottom - (y - y0) / (y1 - y0) * (bottom - top);
  for (const value of ticks(y0, y1, 4, binary)) {
    target.append(svg("line", { class: "grid", x1: left, x2: right, y1: py(value), y2: py(value) }),
      svg("text", { x: left - 6, y: py(value) + 4, "text-anchor": "end" }, formatY(value)));
  }
  for (const value of ticks(x0, x1, Math.max(2, Math.floor(width / 90)))) {
    const anchor = px(value) > right - 30 ? "end" : "middle";
    target.append(svg("text", { x: Math.min(px(value), right), y: height - 5, "text-anchor": anchor }, formatX(value)));
  }
  for (const one of series) {
    const drawn = one.points.filter(([, y]) => y !== null && Number.isFinite(y));
    if (one.dots) {
      for (const [x, y] of drawn) target.append(svg("circle", { class: `f${one.color}`, cx: px(x), cy: py(y), r: 3 }));
    } else {
      const path = drawn.map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`).join(" ");
      target.append(svg("polyline", { class: `line c${one.color}${one.dashed ? " dashed" : ""}`, points: path }));
    }
  }
  follow(target, series, { px, left, right, top, bottom, x0, x1, formatX, formatY });
}

// A line under the pointer, with the values there.
function follow(target, series, { px, left, right, top, bottom, x0, x1, formatX, formatY }) {
  const line = svg("line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });
  const said = svg("text", { class: "said", y: top + 10, visibility: "hidden" });
  target.append(line, said);
  target.onpointermove = (event) => {
    const box = target.getBoundingClientRect(), at = event.clientX - box.left;
    if (at < left || at > right) return;
    const wanted = x0 + (at - left) / (right - left) * (x1 - x0);
    const words = [];
    let found = wanted;
    for (const one of series) {
      const near = one.points.reduce((best, point) =>
        Math.abs(point[0] - wanted) < Math.abs(best[0] - wanted) ? point : best);
      if (!words.length) found = near[0];
      if (near[1] !== null) words.push(`${one.name ? one.name + " " : ""}${formatY(near[1])}`);
    }
    for (const [key, value] of [["x1", px(found)], ["x2", px(found)], ["visibility", "visible"]]) line.setAttribute(key, value);
    said.textContent = `${formatX(found)}: ${words.slice(0, 4).join(", ")}`;
    const late = px(found) > (left + right) / 2;
    said.setAttribute("x", px(found) + (late ? -6 : 6));
    said.setAttribute("text-anchor", late ? "end" : "start");
    said.setAttribute("visibility", "visible");
  };
  target.onpointerleave = () => { line.setAttribute("visibility", "hidden"); said.setAttribute("visibility", "hidden"); };
}
