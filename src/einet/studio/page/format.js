// Numbers, shares and dates as people read them.

const ISO = /^\d{4}-\d{2}-\d{2}(T|$)/;

/** A number with as many digits as its spread deserves: `step` is a difference that matters. */
export function number(value, step) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e9 || size < 1e-4) return value.toExponential(2).replace("e+", "e").replace("-", "−");
  let digits;
  if (step) digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step))));
  else digits = size >= 1000 ? 0 : Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(size))));
  if (Number.isInteger(value)) digits = 0;
  return value
    .toLocaleString("en-US", { minimumFractionDigits: 0, maximumFractionDigits: digits })
    .replaceAll(",", "\u202f")
    .replace("-", "−");
}

/** A probability in per cent, with small ones still told apart from nothing. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = share * 100;
  if (value === 0) return "0 %";
  if (value < 0.01) return "< 0.01 %";
  if (value > 99.99 && value < 100) return "> 99.99 %";
  if (value === 100) return "100 %";
  return `${value.toFixed(value < 1 || value > 99 ? 2 : 1)} %`;
}

/** A probability that may be tiny: in per cent, or as a power of ten, from its logarithm. */
export function chance(probability, log) {
  if (probability !== null && probability !== undefined && probability >= 1e-4) return percent(probability);
  if (log === null || log === undefined) return percent(probability);
  const power = Math.floor(log / Math.LN10);
  return `${Math.exp(log - power * Math.LN10).toFixed(1)} · 10${superscript(power)}`;
}

function superscript(whole) {
  const digits = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  return String(whole).replace("-", "⁻").replace(/\d/g, (digit) => digits[Number(digit)]);
}

/** An ISO date without a time that says nothing. */
export function date(text) {
  if (text === null || text === undefined) return "–";
  return String(text).replace(/T00:00:00(\.0+)?(Z|\+00:00)?$/, "").replace("T", " ").replace(/\.0+$/, "");
}

/** Whatever a cell holds. */
export function cell(value, step) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return number(value, step);
  if (typeof value === "string" && ISO.test(value)) return date(value);
  return String(value);
}

/** Bytes, in the unit that fits. */
export function bytes(count) {
  if (count >= 1e9) return `${(count / 1e9).toFixed(1)} GB`;
  if (count >= 1e6) return `${(count / 1e6).toFixed(0)} MB`;
  return `${Math.ceil(count / 1e3)} kB`;
}

/** "1 row", "2 rows". */
export function count(n, one, many = `${one}s`) {
  return `${number(n)} ${n === 1 ? one : many}`;
}

/** Text of a bounded length. */
export function short(text, length = 24) {
  const whole = String(text);
  return whole.length > length ? `${whole.slice(0, length - 1)}…` : whole;
}
