// A line above each block of code: its language, and a button that copies it.

import { html } from '../xray/dom.js';
import { copyButton } from './clipboard.js';

/**
 * @param {HTMLElement} words an answer that has ended: while it grows, its blocks are drawn again and again
 * @param {(words: string) => void} say
 */
export function addCopyButtons(words, say) {
  for (const block of words.querySelectorAll('pre')) {
    if (block.parentElement.classList.contains('c-code')) continue;
    const button = copyButton('Copy code', () => block.textContent, () => block, say);
    const box = html('div', { class: 'c-code' });
    block.replaceWith(box);
    box.append(html('div', { class: 'c-code-head' }, html('span', {}, block.dataset.language ?? ''), button), block);
  }
}
