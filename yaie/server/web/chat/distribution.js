// What may come next: a row for each of the most likely tokens, with its probability before and after the filters.

import { html, setText } from '../xray/dom.js';
import { wordsOf } from './stream.js';

const SIGNS = { '\n': '⏎', '\t': '⇥', '\r': '␍' };

/** A token in one line, with white space that can be seen. */
export const shownAs = (text) =>
  (text === '' ? '∅' : text.replace(/[\n\t\r]/g, (sign) => SIGNS[sign]).replace(/^ | $/g, '␣'));

function percent(share) {
  if (share === 0) return '0';
  if (share < 0.001) return '<0.1%';
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;
}

/**
 * @typedef {{id: number, text: string, before: number, after: number}} Candidate
 * @typedef {{prompt: number[], tokens: Candidate[], kept: number, vocab: number}} NextToken
 *
 * @param {Function} send @param {{prompt: number[]}|{messages: object[]}} prefix
 * @param {Record<string, number>} settings @param {AbortSignal} signal @returns {Promise<NextToken>}
 */
export async function nextToken(send, prefix, { temperature, top_p, top_k, min_p }, signal) {
  const answer = await send('/web/next_token', {
    method: 'POST', signal, headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ ...prefix, temperature, top_p, top_k, min_p }),
  });
  if (!answer.ok) throw new Error(await wordsOf(answer));
  return answer.json();
}

/** @param {NextToken} found @param {(token: Candidate) => void} choose @param {number} [drawn] the id that was taken */
function row(choose, drawn) {
  const name = html('span', { class: 'c-name' });
  const before = html('i', { class: 'c-before' }), after = html('i', { class: 'c-after' });
  const numbers = html('span', { class: 'c-numbers' });
  let token = null;
  const button = html('button', { type: 'button', class: 'c-candidate', onclick: () => choose(token) },
    name, html('span', { class: 'c-track' }, before, after), numbers);
  return {
    element: html('li', {}, button), button,
    show(next) {
      token = next;
      setText(name, shownAs(token.text));
      before.style.width = `${100 * token.before}%`;
      after.style.width = `${100 * token.after}%`;
      setText(numbers, `${percent(token.before)} → ${percent(token.after)}`);
      button.dataset.id = String(token.id);
      button.dataset.out = String(token.after === 0);
      button.dataset.drawn = String(token.id === drawn);
      button.title = `${JSON.stringify(token.text)}, id ${token.id}`;
      button.setAttribute('aria-label', `${shownAs(token.text)}: ${percent(token.before)} before, ${percent(token.after)} after`
        + `${token.id === drawn ? ', which was drawn' : ''}. Go on with it.`);
    },
  };
}

/**
 * A list of bars that is drawn anew in place when only numbers change.
 * @param {(token: Candidate) => void} choose
 */
export function distribution(choose, drawn) {
  const list = html('ol', { class: 'c-candidates' });
  const note = html('p', { class: 'c-kept' });
  let rows = [];
  return {
    element: html('div', { class: 'c-distribution' }, list, note),
    /** @param {NextToken} found */
    show(found) {
      while (rows.length < found.tokens.length) {
        rows.push(row(choose, drawn));
        list.append(rows.at(-1).element);
      }
      for (const { element } of rows.splice(found.tokens.length)) element.remove();
      rows.forEach((each, index) => each.show(found.tokens[index]));
      setText(note, `Thin: before. Thick: after the filters. ${found.kept.toLocaleString('en')} of ${found.vocab.toLocaleString('en')} tokens may be drawn.`);
    },
    focus: () => rows[0]?.button.focus(),
  };
}
