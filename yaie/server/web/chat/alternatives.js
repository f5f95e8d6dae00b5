// What else might have stood at a token's place; choosing one makes another branch of the conversation.

import { html, setText } from '../xray/dom.js';
import { prefixOf } from './conversation.js';
import { distribution, nextToken, shownAs } from './distribution.js';
import { inWords } from './stream.js';

/**
 * @param {object} ctx @param {import('./conversation.js').Turn} turn @param {number} index of the token
 * @param {() => void} closed
 */
export function alternatives(ctx, turn, index, closed) {
  const asking = new AbortController();
  const token = turn.tokens[index];
  const said = html('p', { class: 'c-said', role: 'status' }, 'The engine computes what else it could be …');
  const bars = distribution((chosen) => { close(); ctx.branch(turn, index, chosen); }, token.id);
  const element = html('div', { class: 'c-alternatives', role: 'dialog', 'aria-label': `Instead of ${shownAs(token.text)}`,
    onkeydown: (event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      close();
      closed();
    } },
  html('header', {}, html('p', {}, 'Instead of ', html('b', {}, shownAs(token.text)), ', go on with:'),
    html('button', { type: 'button', 'aria-label': 'Close the alternatives', onclick: () => { close(); closed(); } }, '✕')),
  said, bars.element);

  function close() {
    asking.abort();
    element.remove();
  }
  nextToken(ctx.send, { prompt: prefixOf(turn, index) }, ctx.settings, asking.signal).then((found) => {
    bars.show(found);
    setText(said, '');
    bars.focus();
  }, (error) => {
    if (!asking.signal.aborted) setText(said, inWords(error));
  });
  return { element, close };
}
