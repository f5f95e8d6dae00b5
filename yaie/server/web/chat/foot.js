// Below the message box: the model's name, and the switch that keeps conversations in this browser.

import { html, setText } from '../xray/dom.js';

const WORDS = {
  on: '',
  off: 'Conversations end with this page.',
  full: 'No room left: what is new is not kept. Delete conversations to make room.',
  forbidden: 'This browser does not let the page keep anything: conversations end with it.',
};

/** @param {import('./keeper.js').Keeper} keeper @param {(isOn: boolean) => void} turned */
export function foot(keeper, turned) {
  const model = html('b', { class: 'c-model' });
  const by = html('p', { class: 'c-by', hidden: true }, html('span', {}, 'Model '), model);
  const box = html('input', { type: 'checkbox', role: 'switch', onchange: () => turned(box.checked) });
  const used = html('span', { class: 'c-used' });
  const said = html('p', { class: 'c-kept-state', role: 'status' });
  const element = html('div', { class: 'c-foot' }, by,
    html('label', { class: 'c-keep' }, box, 'Keep conversations in this browser'), used, said);
  return {
    element,
    name(text) {
      setText(model, text);
      by.hidden = false;
    },
    draw() {
      const { state } = keeper;
      const keeps = state === 'on' || state === 'full';
      box.checked = keeps;
      box.disabled = state === 'forbidden';
      element.dataset.state = state;
      setText(used, keeps && keeper.used ? `${Math.ceil(100 * keeper.used)}% of its room used` : '');
      setText(said, WORDS[state]);
    },
  };
}
