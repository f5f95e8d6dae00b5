// An answer as its tokens: each can be asked for what else might have stood there.

import { html } from '../xray/dom.js';
import { shownAs } from './distribution.js';

/** Underlined the more, the less likely a token was. */
const doubt = (logprob) => (logprob == null ? '' : logprob > -0.1 ? '0' : logprob > -0.7 ? '1' : logprob > -2 ? '2' : '3');

/**
 * A row of buttons of which Tab finds one; arrows go on from there.
 * @param {(index: number, button: HTMLElement) => void} choose
 */
export function tokenView(choose) {
  const element = html('div', { class: 'c-tokens', role: 'group', 'aria-label': 'Tokens of the answer', onkeydown: move });
  let current = 0;

  const buttons = () => element.querySelectorAll('button');
  function attend(index, focus = true) {
    const all = buttons();
    if (!all.length) return;
    all[current]?.setAttribute('tabindex', '-1');
    current = Math.max(0, Math.min(all.length - 1, index));
    all[current].setAttribute('tabindex', '0');
    if (focus) all[current].focus();
  }
  function move(event) {
    const goal = { ArrowRight: current + 1, ArrowLeft: current - 1, Home: 0, End: Infinity }[event.key];
    if (goal === undefined) return;
    event.preventDefault();
    attend(goal);
  }
  return {
    element, attend,
    /** @param {import('./conversation.js').Turn} turn */
    draw({ tokens, given, reason }) {
      for (let index = buttons().length; index < tokens.length; index += 1) {
        const { id, text, logprob } = tokens[index];
        const isEnd = text === '' && reason === 'stop' && index === tokens.length - 1;
        const name = isEnd ? 'end' : shownAs(text);
        element.append(html('button', {
          type: 'button', class: 'c-token', tabindex: index === current ? 0 : -1, 'data-doubt': doubt(logprob),
          'data-given': index < given ? 'true' : null, 'data-empty': text === '' ? 'true' : null,
          title: logprob == null ? `id ${id}` : `id ${id}, ${(100 * Math.exp(logprob)).toFixed(1)}%`,
          'aria-haspopup': 'dialog', 'aria-label': `Token ${index + 1}: ${name}`,
          onclick: (event) => { attend(index); choose(index, event.currentTarget); },
        }, text.trim() ? text : name));
        // A line of the answer ends where its token ends.
        if (text.includes('\n')) element.append(html('br'));
      }
    },
  };
}
