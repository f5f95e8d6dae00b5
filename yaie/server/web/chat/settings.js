// The sampling sliders. One setting for the whole page: what is set holds for the next answer.

import { html, setText } from '../xray/dom.js';

const FIELDS = [
  { name: 'temperature', label: 'Temperature', min: 0, max: 2, step: 0.05, value: 0.8, say: (value) => (value ? value.toFixed(2) : '0, greedy') },
  { name: 'top_p', label: 'Top-p', min: 0.01, max: 1, step: 0.01, value: 0.95, say: (value) => (value < 1 ? value.toFixed(2) : 'off') },
  { name: 'top_k', label: 'Top-k', min: 0, max: 100, step: 1, value: 0, say: (value) => (value || 'off') },
  { name: 'min_p', label: 'Min-p', min: 0, max: 0.5, step: 0.01, value: 0, say: (value) => (value ? value.toFixed(2) : 'off') },
  { name: 'max_tokens', label: 'Max tokens', min: 1, max: 1024, step: 1, value: 256, say: String },
];

/**
 * @param {() => void} changed called when what may be drawn is another
 * @returns {{element: HTMLElement, values: Record<string, number>}}
 */
export function sliders(changed) {
  const values = Object.fromEntries(FIELDS.map(({ name, value }) => [name, value]));
  const field = ({ name, label, min, max, step, value, say }) => {
    const words = html('output', {}, String(say(value)));
    const input = html('input', { type: 'range', name, min, max, step, value, 'aria-valuetext': String(say(value)),
      oninput: () => {
        values[name] = Number(input.value);
        const said = String(say(values[name]));
        setText(words, said);
        input.setAttribute('aria-valuetext', said);
        changed();
      } });
    return html('label', { class: 'c-slider' }, html('span', {}, label, words), input);
  };
  return { values, element: html('div', { class: 'c-sliders' }, FIELDS.map(field)) };
}
