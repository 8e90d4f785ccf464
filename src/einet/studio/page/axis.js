// A column's own units: between numbers on an axis and values as the user writes them.

import { scaleLinear, scaleUtc } from "./vendor/d3.js";
import { cell, date, number } from "./format.js";
import { heavyOnes } from "./grid.js";

/** Whether a column is drawn along an axis rather than state by state. */
export function hasAxis(column) {
  return Array.isArray(column.edges) && column.edges.length > 1;
}

/** Whether a column can be asked about at all. */
export function isAsked(column) {
  return column.kind !== "left out" && column.kind !== "constant";
}

export function span(column) {
  return [column.edges[0], column.edges[column.edges.length - 1]];
}

/** A step that is small beside the column's range, and round. */
export function step(column) {
  if (!hasAxis(column)) return undefined;
  const [low, high] = span(column);
  const fine = 10 ** Math.floor(Math.log10(Math.max(high - low, 1e-12) / 100));
  return column.kind === "integer" ? Math.max(1, fine) : fine;
}

function milliseconds(column) {
  const [low, high] = span(column);
  const labels = column.edge_labels;
  // Without a zone a time would be read as local time: all times here are as in the file.
  const parse = (text) => Date.parse(/T.*(Z|[+-]\d\d:?\d\d)$/.test(text) || !text.includes("T") ? text : `${text}Z`);
  return scaleLinear([low, high], [parse(labels[0]), parse(labels[labels.length - 1])]);
}

/** A number on the axis as a value of the column. */
export function toValue(column, position, towards = 0, unit = step(column) / 10) {
  if (column.kind === "date") {
    const moment = new Date(milliseconds(column)(position)).toISOString();
    const [low, high] = milliseconds(column).range();
    return high - low > 10 * 86_400_000 ? moment.slice(0, 10) : moment.slice(0, 19);
  }
  if (column.kind === "integer") {
    const slack = 1e-9;
    return towards < 0 ? Math.ceil(position - slack) : towards > 0 ? Math.floor(position + slack) : Math.round(position);
  }
  return Number((Math.round(position / unit) * unit).toPrecision(12));
}

/** A value of the column as a number on the axis. */
export function toPosition(column, value) {
  if (value === null || value === undefined) return null;
  if (column.kind === "date" && typeof value === "string") {
    const moment = Date.parse(value.includes("T") && !/(Z|[+-]\d\d:?\d\d)$/.test(value) ? `${value}Z` : value);
    return milliseconds(column).invert(moment);
  }
  return Number(value);
}

/** The range of values between two numbers on the axis, as evidence. */
export function range(column, from, to, unit = step(column)) {
  const [low, high] = [Math.min(from, to), Math.max(from, to)];
  let lower = toValue(column, low, -1, unit);
  let upper = toValue(column, high, 1, unit);
  if (column.kind === "integer" && lower > upper) lower = upper = toValue(column, (low + high) / 2);
  // What reaches an end of the axis means all that lies beyond it too.
  const [first, last] = span(column);
  const isAll = low <= first && high >= last;
  if (low <= first && !isAll) lower = null;
  if (high >= last && !isAll) upper = null;
  return { column: column.name, op: "between", lower, upper };
}

/** The same for drawn bins. */
export function binRange(column, first, last = first) {
  const evidence = range(column, column.edges[first], column.edges[last + 1], step(column) / 10);
  // The upper edge of an integer's bin belongs to the next one.
  if (column.kind === "integer" && Number.isInteger(column.edges[last + 1]) && evidence.upper !== null) {
    evidence.upper = Math.max(evidence.lower ?? evidence.upper - 1, evidence.upper - 1);
  }
  return evidence;
}

/** A scale in pixels with ticks in the column's units. */
export function pixels(column, width) {
  const [low, high] = span(column);
  const scale = scaleLinear([low, high], [0, width]);
  const wanted = Math.max(2, Math.floor(width / 70));
  let ticks;
  if (column.kind === "date") {
    const time = scaleUtc(milliseconds(column).range().map((moment) => new Date(moment)), [0, width]);
    const name = time.tickFormat(wanted);
    ticks = time.ticks(wanted).map((moment) => ({ x: time(moment), text: name(moment) }));
  } else {
    ticks = scale.ticks(wanted).map((value) => ({ x: scale(value), text: compact(value) }));
  }
  return { scale, ticks };
}

function compact(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${number(value / 1e6)}M`;
  if (size >= 1e4) return `${number(value / 1e3)}k`;
  return number(value);
}

/** A value of the column as text. */
export function show(column, value) {
  if (value === null || value === undefined) return "–";
  if (column.kind === "date" && typeof value === "number" && hasAxis(column)) return date(toValue(column, value));
  if (column.unit && typeof value === "number") return `${number(value, step(column) / 10)} ${column.unit === "seconds" ? "s" : column.unit}`;
  return cell(value, typeof value === "number" && hasAxis(column) ? step(column) / 10 : undefined);
}

/** A value of the column with all of its digits. */
export function exactly(column, value) {
  if (typeof value !== "number" || column.kind === "date" || column.unit) return show(column, value);
  return number(value, 1e-6);
}

const heavyOf = new WeakMap();

/** Spikes so heavy that a bin with them in it would dwarf all others: they are drawn as rows. */
export function heavySpikes(column) {
  if (column.grid) return column.spikes.map((_, i) => i);
  if (!heavyOf.has(column)) {
    const places = (column.spikes ?? []).map((spike) => binOf(column, spike));
    heavyOf.set(column, heavyOnes(column.prior?.spikes ?? [], places, column.prior?.bins ?? []));
  }
  return heavyOf.get(column);
}

/** The bin that a value lies in, or -1; the last one has its upper end too. */
function binOf(column, value) {
  const place = toPosition(column, value);
  const last = column.edges.length - 1;
  if (place === column.edges[last]) return last - 1;
  const bin = column.edges.findLastIndex((edge) => edge <= place);
  return bin < last ? bin : -1;
}

/** The bins with all lighter spikes put where they lie: what is drawn along the axis. */
export function withSpikes(column, shares) {
  if (!shares?.bins) return null;
  const total = [...shares.bins];
  const heavy = new Set(heavySpikes(column));
  (column.spikes ?? []).forEach((spike, i) => {
    if (heavy.has(i) || !shares.spikes?.[i]) return;
    const bin = binOf(column, spike);
    if (bin >= 0) total[bin] += shares.spikes[i];
  });
  return total;
}

/** What was typed into a field, as a value of the column; an error says what is expected. */
export function parse(column, text) {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  if (column.kind === "date") {
    if (Number.isNaN(Date.parse(trimmed))) throw new Error(`${column.name} takes dates such as 2024-05-31, not ${trimmed}.`);
    return trimmed.replace(" ", "T");
  }
  if (hasAxis(column)) {
    const value = Number(trimmed.replace("−", "-").replaceAll(/[\s\u202f,]/g, ""));
    if (!Number.isFinite(value)) throw new Error(`${column.name} takes numbers, not ${trimmed}.`);
    return value;
  }
  const found = (column.values ?? []).find((value) => String(value) === trimmed);
  if (found === undefined) throw new Error(`${column.name} has no value ${trimmed}.`);
  return found;
}
