// A sent message under the pen. What was behind it is dropped when it is sent again, and it says so.

import { html } from '../xray/dom.js';

/**
 * @param {import('./conversation.js').Turn} turn of a user
 * @param {(text: ?string) => void} done with the new words; null where it is left as it was
 */
export function editor(turn, done) {
  const input = html('textarea', { rows: Math.min(8, turn.text.split('\n').length + 1), 'aria-label': 'The message, edited',
    'aria-describedby': `edit-${turn.id}`, oninput: () => { send.disabled = !input.value.trim(); },
    onkeydown: (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation(); // it would stop an answer too
        done(null);
      }
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (input.value.trim()) done(input.value.trim());
    } });
  input.value = turn.text;
  const send = html('button', { class: 'c-action c-strong' }, 'Send again');
  const element = html('form', { class: 'c-editor', onsubmit: (event) => { event.preventDefault(); done(input.value.trim()); } },
    input, html('footer', {}, html('span', { id: `edit-${turn.id}` }, 'What is behind it will be dropped and asked for anew.'),
      send, html('button', { type: 'button', class: 'c-action', onclick: () => done(null) }, 'Cancel')));
  return { element, focus: () => input.focus() };
}
