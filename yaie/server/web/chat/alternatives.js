// What else might have stood at a token's place; choosing one makes another branch of the conversation.

import { html, setText } from '../xray/dom.js';
import { prefixOf } from './conversation.js';
import { distribution, nextToken, shownAs } from './distribution.js';
import { recall } from './prompts.js';
import { inWords } from './stream.js';

/**
 * @param {object} ctx @param {import('./conversation.js').Turn} turn @param {number} index of the token
 * @param {() => void} closed
 */
export function alternatives(ctx, turn, index, closed) {
  let asking = null;
  const token = turn.tokens[index];
  const name = token.text === '' ? 'this token' : shownAs(token.text);
  const said = html('p', { class: 'c-said', role: 'status' }, 'The engine computes what else it could be …');
  const bars = distribution((chosen) => { close(); ctx.branch(turn, index, chosen); }, token.id);
  const element = html('div', { class: 'c-alternatives', role: 'dialog', 'aria-label': `Instead of ${name}`,
    onkeydown: (event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      close();
      closed();
    } },
  html('header', {}, html('p', {}, 'Instead of ', html('b', {}, name), ', go on with:'),
    html('button', { type: 'button', 'aria-label': 'Close the alternatives', onclick: () => { close(); closed(); } }, '✕')),
  said, bars.element);

  function close() {
    asking.abort();
    element.remove();
    ctx.watchers.delete(ask);
  }

  /** Once now, and again whenever a slider moves. */
  async function ask() {
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    try {
      await recall(ctx, turn, signal);
      const found = await nextToken(ctx.send, { prompt: prefixOf(turn, index) }, ctx.settings, signal);
      if (signal.aborted) return;
      bars.show(found);
      if (said.textContent) {
        setText(said, '');
        bars.focus();
        element.scrollIntoView({ block: 'nearest' });
      }
    } catch (error) {
      if (!signal.aborted) setText(said, inWords(error));
    }
  }
  ctx.watchers.add(ask);
  ask();
  return { element, close };
}
