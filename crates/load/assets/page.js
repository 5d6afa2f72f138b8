"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const place = (id) => document.getElementById(id);
const number = (value, digits = 2) =>
  value == null ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits });
const colours = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"];

function table(id, rows) {
  const element = document.createElement("table");
  rows.forEach((row, index) => {
    const line = element.insertRow();
    row.forEach((cell) => {
      const field = document.createElement(index ? "td" : "th");
      field.textContent = cell;
      line.append(field);
    });
  });
  place(id).append(element);
}

function warn(warnings) {
  for (const warning of warnings) {
    const line = document.createElement("p");
    line.className = "warning";
    line.textContent = warning;
    place("warnings").append(line);
  }
}

// As the page is, light or dark, when it is drawn: uPlot's own are for light alone.
const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
const axis = (options) => ({ stroke: paint("--ink"), grid: { stroke: paint("--line") }, ticks: { stroke: paint("--line") }, ...options });

const POINTS_MAX = 600;

// So few points as can be distinguished: the mean of several, or the most of them.
function thinned(values, each, mean) {
  const points = [];
  for (let from = 0; from < values.length; from += each) {
    const known = values.slice(from, from + each).filter((value) => value != null);
    points.push(!known.length ? null : mean ? known.reduce((sum, value) => sum + value, 0) / known.length : Math.max(...known));
  }
  return points;
}

function chart(id, xs, lines, options = {}) {
  if (!xs.length || !lines.length) {
    place(id).textContent = "nothing was recorded";
    return;
  }
  const each = Math.ceil(xs.length / POINTS_MAX);
  if (each > 1) {
    lines = lines.map(([label, values, extra]) => [`${label}, ${options.mean ? "mean" : "most"} of ${each}`, thinned(values, each, options.mean), extra]);
    xs = xs.filter((_, index) => index % each === 0);
  }
  const series = lines.map(([label, , extra], index) => ({
    label, stroke: colours[index % colours.length], width: 1.5, spanGaps: true, points: { show: xs.length < 2 }, ...extra,
  }));
  new uPlot({
    width: Math.min(960, document.body.clientWidth), height: 300,
    scales: { x: { time: false, distr: options.log ? 3 : 1 }, y: { range: (u, low, high) => [0, high * 1.05 || 1] } },
    axes: [axis({ label: options.x ?? "seconds" }), axis({ label: options.y, size: 70 })],
    series: [{ label: options.x ?? "second" }, ...series],
  }, [xs, ...lines.map(([, ys]) => ys)], place(id));
}

