// A step in a sentence or three, for those who do not yet know what the pictures mean.

import { isChunk } from './format.js';

const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;
const listed = (words) => (words.length < 2 ? words.join('')
  : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`);
const few = (words) => (words.length > 6 ? `${words.slice(0, 5).join(', ')} and ${words.length - 5} others` : listed(words));

function computed(record, letter) {
  const rows = record.rows ?? [];
  const chunks = rows.filter(isChunk);
  const decoding = rows.filter((row) => !isChunk(row)).map(({ id }) => letter(id));
  const decodes = decoding.length;
  const said = chunks.slice(0, 4).map(({ id, start, num_tokens: count, is_prefill: isPrompt }) => {
    const what = isPrompt ? plural(count, 'prompt token') : plural(count, 'token');
    return `${letter(id)} computes ${what}${start ? ` from ${start} on` : ''}`;
  });
  if (chunks.length > 4) said.push(`${chunks.length - 4} more compute chunks`);
  if (decodes) {
    said.push(decodes > 3 ? `${decodes} requests decode` : `${listed(decoding)} ${decodes === 1 ? 'decodes' : 'decode'}`);
  }
  return said.length ? `${said.join('; ')}.` : 'Nothing is computed.';
}

/**
 * @param {import('./reduce.js').State} state after the step
 * @param {(id: string) => string} letter
 */
export function tell(state, letter) {
  const { record } = state;
  if (!record) return 'The engine waits for a request.';
  const said = [];
  const names = (ids) => few(ids.map(letter));
  if (record.new?.length) said.push(`${names(record.new.map(({ id }) => id))} ${record.new.length === 1 ? 'arrives' : 'arrive'}.`);
  if (record.merged > 1) said.push(`${record.merged} steps in one record:`);
  said.push(computed(record, letter));
  const reused = (record.rows ?? []).filter(({ id, start, cached }) =>
    start > 0 && cached === start && state.requests.get(id)?.preemptions === 0 && state.events.length
    && state.requests.get(id).output <= 1);
  for (const { id, start } of reused.slice(0, 3)) said.push(`${letter(id)} found ${start} tokens of its prompt in the tree.`);
  for (const [id, how] of record.preempted ?? []) {
    said.push(`No block is free: ${letter(id)} is preempted, ${how === 'swap' ? 'its blocks go to the host' : 'and must be computed again'}.`);
  }
  const evicted = state.events.filter(({ kind }) => kind === 'evict').reduce((sum, { blocks }) => sum + blocks.length, 0);
  if (evicted) said.push(`The tree gives up ${plural(evicted, 'block')}.`);
  if (record.finished?.length) {
    said.push(record.finished.length > 3 ? `${record.finished.length} requests end.`
      : record.finished.map(([id, reason]) => `${letter(id)} ends (${reason}).`).join(' '));
  }
  return said.join(' ');
}
