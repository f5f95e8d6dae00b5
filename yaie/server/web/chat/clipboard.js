// Buttons that copy. Without HTTPS a browser has no clipboard for a page; then the text is selected, to be copied by hand.

import { html } from '../xray/dom.js';

const SHOWN = 1500; // ms

function select(element) {
  element.focus();
  getSelection().selectAllChildren(element);
}

/**
 * @param {string} label
 * @param {() => string|Promise<string>} text
 * @param {(text: string) => HTMLElement} byHand what has the text, to select it
 * @param {(words: string) => void} say to a screen reader
 */
export function copyButton(label, text, byHand, say) {
  const button = html('button', { type: 'button', class: 'c-action', onclick: copy }, label);
  const shows = (words, more = '.') => {
    button.textContent = words;
    say(`${words}${more}`);
    setTimeout(() => { button.textContent = label; }, SHOWN);
  };
  async function copy() {
    let copied;
    try {
      copied = await text();
    } catch (error) {
      say(error.message);
      return;
    }
    try {
      await navigator.clipboard.writeText(copied);
      shows('Copied');
    } catch {
      select(byHand(copied));
      shows('Selected', ', to be copied by hand.');
    }
  }
  return button;
}
