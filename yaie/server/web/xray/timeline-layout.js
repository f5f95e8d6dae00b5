// Which steps the timeline shows, what each computed, and which lane each request has. No drawing: a test can ask.

import { isChunk } from './format.js';

/** Width of a column, in pixels, at each zoom. */
export const ZOOMS = [4, 7, 11, 16, 24, 36];

/** The zoom with which all steps are in sight, if there is one that is not too wide or too narrow to read. */
export function autoZoom(steps, width) {
  if (steps * ZOOMS[4] <= width) return 4;
  return steps * ZOOMS[2] > width || steps * ZOOMS[3] <= width ? 3 : 2;
}

/**
 * The columns in sight: as they were, moved as little as shows the cursor.
 * @param {number} first the first one so far @param {number} fit how many fit @param {number} total records
 * @param {number} cursor @returns {number} the first one now
 */
export function scrolled(first, fit, total, cursor) {
  const last = Math.max(0, total - fit);
  const margin = Math.min(2, Math.floor(fit / 4));
  let now = Math.min(first, last);
  if (cursor < now + margin) now = cursor - margin;
  if (cursor > now + fit - 1 - margin) now = cursor - fit + 1 + margin;
  return Math.max(0, Math.min(last, now));
}

/** [prefill, decode] tokens of a step; of a record of several steps, of one of them on average. */
export function tokensOf({ rows = [], merged = 1 }) {
  const sums = [0, 0];
  for (const row of rows) sums[isChunk(row, merged) ? 0 : 1] += row.num_tokens / merged;
  return sums;
}

/** Whether a record stands for steps that are not drawn. */
export const isBreak = ({ merged = 1 }) => merged > 1;

/** The requests in records [from, to), each with the first and the last record that names it. */
export function spansOf(records, from, to, orderOf) {
  const spans = new Map();
  const meet = (id, at) => {
    const span = spans.get(id);
    if (span) span.last = at;
    else spans.set(id, { id, first: at, last: at, order: orderOf(id) });
  };
  for (let at = from; at < to; at += 1) {
    const record = records[at];
    for (const row of record.rows ?? []) meet(row.id, at);
    for (const id of record.waiting ?? []) meet(id, at);
    for (const [id] of record.finished ?? []) meet(id, at);
  }
  return [...spans.values()].sort((one, other) => one.order - other.order);
}

/**
 * A lane for each request: its own as long as there are few, else lanes are used again.
 * @returns {{lanes: Map<string, number>, count: number, shared: boolean}}
 */
export function lanesOf(spans, most) {
  if (spans.length <= most) {
    return { lanes: new Map(spans.map(({ id }, lane) => [id, lane])), count: spans.length, shared: false };
  }
  const ends = [];
  const lanes = new Map();
  for (const { id, first, last } of [...spans].sort((one, other) => one.first - other.first)) {
    let lane = ends.findIndex((end) => end < first - 1);
    if (lane < 0) lane = ends.length;
    ends[lane] = last;
    lanes.set(id, lane);
  }
  return { lanes, count: ends.length, shared: ends.length < spans.length };
}
