// A recording is a file of JSON lines: the header, perhaps a snapshot, then steps. The format of the event stream.

import { VERSION } from './format.js';
import { snapshotOf } from './snapshot.js';

/**
 * The records of a recording, checked.
 * @param {string} text @returns {object[]} the header first
 * @throws {Error} with words for the reader
 */
export function parse(text) {
  const records = text.split('\n').filter((line) => line.trim()).map((line, index) => {
    try {
      return JSON.parse(line);
    } catch {
      throw new Error(`Line ${index + 1} is not JSON: this is no recording, or it is cut off.`);
    }
  });
  const [header] = records;
  if (header?.kind !== 'header') throw new Error('This is no recording: its first line is no header.');
  if (header.v > VERSION) {
    throw new Error(`This recording is of format ${header.v}. This page reads formats up to ${VERSION}.`);
  }
  return records;
}

/** The text of a recording of what a store keeps: it begins with the state before the first kept step. */
export function serialise(store) {
  const { header, base, records } = store;
  const isWhole = base.n === 0 && base.requests.size === 0 && !base.partial;
  const lines = isWhole ? [header, ...records] : [header, snapshotOf(base), ...records];
  return lines.map((line) => `${JSON.stringify(line)}\n`).join('');
}

/** Offers a recording as a download. */
export function save(store) {
  const url = URL.createObjectURL(new Blob([serialise(store)], { type: 'application/jsonl' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = `yaie-steps-${store.base.n + 1}-${store.records.at(-1)?.n ?? 0}.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
