// A step in a sentence or three, for those who do not yet know what the pictures mean.

import { isChunk } from './format.js';

const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;
const listed = (words) => (words.length < 2 ? words.join('')
  : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`);
const few = (words) => (words.length > 6 ? `${words.slice(0, 5).join(', ')} and ${words.length - 5} others` : listed(words));

function computed(record, letter) {
  const rows = record.rows ?? [];
  const chunks = rows.filter((row) => isChunk(row, record.merged));
  const decoding = rows.filter((row) => !isChunk(row, record.merged)).map(({ id }) => letter(id));
  const decodes = decoding.length;
  const sum = chunks.reduce((all, { num_tokens: count }) => all + count, 0);
  const said = chunks.length > 3 ? [`${chunks.length} requests compute ${sum} tokens of chunks`] : chunks.map(({ id, start, num_tokens: count, is_prefill: isPrompt }) => {
    const what = isPrompt ? plural(count, 'prompt token') : plural(count, 'token');
    return `${letter(id)} computes ${what}${start ? ` from ${start} on` : ''}`;
  });
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
  const arrived = (record.new ?? []).filter(({ peek }) => !peek);
  if (arrived.length) said.push(`${names(arrived.map(({ id }) => id))} ${arrived.length === 1 ? 'arrives' : 'arrive'}.`);
  if (record.new?.some(({ peek }) => peek)) said.push('“Next token” looks ahead, as “?”.');
  if (record.merged > 1) said.push(`${record.merged} steps, drawn as one.`);
  said.push(computed(record, letter));
  const reused = (record.rows ?? []).filter(({ id, start, cached }) =>
    start > 0 && cached === start && state.requests.get(id)?.preemptions === 0 && state.events.length
    && state.requests.get(id).output <= 1);
  if (reused.length) {
    const found = reused.reduce((sum, { start }) => sum + start, 0);
    const whose = reused.length === 1 ? 'its prompt' : 'their prompts';
    said.push(`${names(reused.map(({ id }) => id))} found ${found} tokens of ${whose} in the tree.`);
  }
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
