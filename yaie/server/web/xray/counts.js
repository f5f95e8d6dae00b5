// A number for each block, kept in chunks: a step changes a few blocks of many, and copies only their chunks.

const CHUNK = 256;

/** @typedef {ReadonlyMap<number, Int16Array>} Counts chunk number -> counts; a missing chunk is all zero */

/** @type {Counts} */
export const noCounts = new Map();

/** @param {Counts} counts @param {number} block */
export const countOf = (counts, block) => counts.get(Math.floor(block / CHUNK))?.[block % CHUNK] ?? 0;

/** @param {Counts} counts @param {[number, number][]} deltas pairs of block and change @returns {Counts} */
export function withDeltas(counts, deltas) {
  if (!deltas.length) return counts;
  const next = new Map(counts);
  const own = new Set();
  for (const [block, change] of deltas) {
    const index = Math.floor(block / CHUNK);
    if (!own.has(index)) {
      next.set(index, next.get(index)?.slice() ?? new Int16Array(CHUNK));
      own.add(index);
    }
    next.get(index)[block % CHUNK] += change;
  }
  return next;
}

/** How many of the first `size` blocks have a reference. */
export function numHeld(counts, size) {
  let held = 0;
  for (const [index, chunk] of counts) {
    chunk.forEach((count, offset) => { held += count > 0 && index * CHUNK + offset < size ? 1 : 0; });
  }
  return held;
}
