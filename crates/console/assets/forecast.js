// When a disk is full, if it goes on as it did. Pure.

const POINTS_MIN = 60;
const BLOCKS = 8;

/** The slope of a line of least squares. @param {number[]} xs @param {number[]} ys */
function slope(xs, ys) {
  const mean = (/** @type {number[]} */ values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [x, y] = [mean(xs), mean(ys)];
  let above = 0;
  let below = 0;
  xs.forEach((value, index) => {
    above += (value - x) * ((ys[index] ?? y) - y);
    below += (value - x) ** 2;
  });
  return below === 0 ? 0 : above / below;
}

/** Free bytes over time become the time until none is left, with an interval: two standard errors of the mean of the
 * slopes of eight blocks, since neighbouring points depend on each other. Null: too few points, or it does not shrink.
 * @param {number[]} xs Seconds. @param {(number | null)[]} ys Free bytes.
 * @returns {{seconds: number, soonest: number, latest: number | null} | null} */
export function untilFull(xs, ys) {
  const points = xs.map((x, index) => ({ x, y: ys[index] })).filter((point) => typeof point.y === "number");
  if (points.length < POINTS_MIN) return null;
  const x = points.map((point) => point.x);
  const y = points.map((point) => /** @type {number} */ (point.y));
  const all = slope(x, y);
  const size = Math.floor(points.length / BLOCKS);
  const each = Array.from({ length: BLOCKS }, (_, block) => slope(x.slice(block * size, (block + 1) * size), y.slice(block * size, (block + 1) * size)));
  const mean = each.reduce((sum, value) => sum + value, 0) / BLOCKS;
  const spread = Math.sqrt(each.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (BLOCKS - 1) / BLOCKS);
  const free = y[y.length - 1] ?? 0;
  const [fast, slow] = [all - 2 * spread, all + 2 * spread];
  if (all >= 0 || free <= 0) return null;
  return { seconds: free / -all, soonest: free / -fast, latest: slow < 0 ? free / -slow : null };
}
