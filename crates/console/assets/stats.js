// Reads what `/v0/stats` of a node says. Pure. What is zero may be missing there: missing is 0.

/** @typedef {Record<string, string | number>} Labels A label `peer` is the peer's URL. */

/** The samples of a metric, each with its labels.
 * @param {Stats} stats @param {string} name @returns {{labels: Labels, value: number}[]} */
export function samples(stats, name) {
  const metric = stats.metrics[name];
  if (metric === undefined) return [];
  if (typeof metric === "number") return [{ labels: {}, value: metric }];
  const names = stats.labels[name] ?? [];
  return metric.map((sample) => {
    /** @type {Labels} */
    const labels = {};
    names.forEach((label, index) => {
      const raw = /** @type {string | number} */ (sample[index]);
      labels[label] = label === "peer" && typeof raw === "number" ? stats.peers[raw] ?? String(raw) : raw;
    });
    return { labels, value: Number(sample[sample.length - 1]) };
  });
}

/** @param {Labels} labels @param {Labels} wanted */
const matches = (labels, wanted) => Object.entries(wanted).every(([name, value]) => labels[name] === value);

/** The sum of the samples that have these labels. Asked for hundreds of times a frame, so it makes nothing new.
 * @param {Stats} stats @param {string} name @param {Labels} [wanted] @returns {number} */
export function metric(stats, name, wanted) {
  const metric = stats.metrics[name];
  if (metric === undefined) return 0;
  if (typeof metric === "number") return wanted ? 0 : metric;
  const names = stats.labels[name] ?? [];
  let sum = 0;
  for (const sample of metric) {
    let fits = true;
    for (const label in wanted) {
      const raw = sample[names.indexOf(label)];
      if ((label === "peer" && typeof raw === "number" ? stats.peers[raw] : raw) !== wanted[label]) fits = false;
    }
    if (fits) sum += Number(sample[sample.length - 1]);
  }
  return sum;
}

/** How many were counted in each bucket. @typedef {Map<number, number>} Buckets */

/** The buckets of a histogram, of all samples that have these labels, without those counted before.
 * @param {Stats | null} before @param {Stats} now @param {string} name @param {Labels} [wanted] @returns {Buckets} */
export function buckets(before, now, name, wanted = {}) {
  /** @type {Buckets} */
  const total = new Map();
  const add = (/** @type {Stats} */ stats, /** @type {number} */ sign) => {
    const histogram = stats.histograms[name];
    for (const sample of histogram?.values ?? []) {
      /** @type {Labels} */
      const labels = Object.fromEntries(histogram?.labels.map((label, index) => [label, sample[index]]) ?? []);
      if (!matches(labels, wanted)) continue;
      for (const [bucket, counted] of /** @type {[number, number][]} */ (sample[sample.length - 1])) {
        total.set(bucket, (total.get(bucket) ?? 0) + sign * counted);
      }
    }
  };
  add(now, 1);
  if (before && before.uptime_s <= now.uptime_s) add(before, -1);
  return total;
}

/** @param {Buckets[]} all @returns {Buckets} */
export function merged(all) {
  /** @type {Buckets} */
  const total = new Map();
  for (const one of all) for (const [bucket, counted] of one) total.set(bucket, (total.get(bucket) ?? 0) + counted);
  return total;
}

/** @param {Buckets} counts @returns {number} */
export const counted = (counts) => Array.from(counts.values()).reduce((sum, value) => sum + Math.max(0, value), 0);

/** A quantile in the histogram's unit, linear within its bucket as on graphs and in Prometheus; null of nothing.
 * @param {Buckets} counts @param {number[]} bounds @param {number} quantile @returns {number | null} */
export function quantile(counts, bounds, quantile) {
  const total = counted(counts);
  if (total === 0) return null;
  const rank = total * quantile;
  let below = 0;
  for (const bucket of Array.from(counts.keys()).sort((a, b) => a - b)) {
    const count = Math.max(0, counts.get(bucket) ?? 0);
    const [lower, upper] = [bounds[bucket - 1] ?? 0, bounds[bucket] ?? 0];
    if (count > 0 && below + count >= rank) return lower + (upper - lower) * ((rank - below) / count);
    below += count;
  }
  return null;
}

/** By how much a counter grew in each second between two pages; null where that is not known.
 * @param {Stats | null | undefined} before @param {Stats | null | undefined} now @param {string} name @param {Labels} [wanted]
 * @returns {number | null} */
export function rate(before, now, name, wanted) {
  if (!before || !now || now.at_ms <= before.at_ms || now.uptime_s < before.uptime_s) return null;
  return Math.max(0, metric(now, name, wanted) - metric(before, name, wanted)) / ((now.at_ms - before.at_ms) / 1000);
}

/** The sum of what is known; null where nothing is. @param {(number | null)[]} values @returns {number | null} */
export function total(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => /** @type {number} */ (sum) + /** @type {number} */ (value), 0) : null;
}
