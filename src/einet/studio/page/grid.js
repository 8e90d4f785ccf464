// Numbers that a model keeps as many states, such as ages: drawn along an axis, as numbers are.

// With fewer, each has a row of its own; with more bins, they would be too thin to point at.
const FEW = 12;
const BINS = 40;
// A value so heavy, and so much heavier than any bin, would dwarf all others: it is drawn as a row.
const HEAVY = 0.2;
const TIMES = 3;

/** Which of some values, with their shares and their bins, are drawn as rows of their own. */
export function heavyOnes(shares, places, bins) {
  const total = [...bins];
  const isCandidate = shares.map((share) => share >= HEAVY);
  shares.forEach((share, i) => {
    if (!isCandidate[i] && places[i] >= 0 && places[i] < total.length) total[places[i]] += share;
  });
  const most = Math.max(...total);
  return shares.flatMap((share, i) => (isCandidate[i] && share >= TIMES * most ? [i] : []));
}

/** A column as it is drawn: many numeric states become an axis with bins. */
export function asDrawn(column) {
  const values = column.values ?? [];
  if (column.kind !== "ordered" || values.length <= FEW || !values.every((value) => typeof value === "number")) return column;
  const edges = edgesOf(values);
  const places = values.map((value) => edges.findLastIndex((edge) => edge <= value));
  const heavy = heavyOnes(column.prior?.values ?? [], places, new Array(edges.length - 1).fill(0));
  const drawn = {
    ...column,
    kind: values.every(Number.isInteger) ? "integer" : "number",
    values: null,
    edges,
    spikes: heavy.map((i) => values[i]),
    grid: { heavy, places: places.map((place, i) => (heavy.includes(i) ? null : place)) },
  };
  drawn.data = regrouped(drawn, column.data);
  drawn.prior = regrouped(drawn, column.prior);
  return drawn;
}

function edgesOf(values) {
  const [first, last] = [values[0], values[values.length - 1]];
  if (values.every(Number.isInteger)) {
    const width = Math.max(1, Math.ceil((last - first + 1) / BINS));
    return Array.from({ length: Math.ceil((last - first + 1) / width) + 1 }, (_, n) => first - 0.5 + width * n);
  }
  const width = (last - first) / (BINS - 1);
  return Array.from({ length: BINS + 1 }, (_, n) => first + width * (n - 0.5));
}

/** Shares of states as shares of bins and of spikes. */
function regrouped(column, shares) {
  if (!shares?.values) return shares;
  const { heavy, places } = column.grid;
  const bins = new Array(column.edges.length - 1).fill(0);
  places.forEach((place, i) => {
    if (place !== null) bins[Math.min(place, bins.length - 1)] += shares.values[i];
  });
  return { ...shares, bins, spikes: heavy.map((i) => shares.values[i]), values: null };
}

/** All answers, those of such columns as they are drawn. */
export function answersAsDrawn(columns, answers) {
  const drawn = { ...answers };
  for (const column of columns) {
    if (column.grid && drawn[column.name]) drawn[column.name] = regrouped(column, drawn[column.name]);
  }
  return drawn;
}
