// The live distribution under the conversation's end: follows the sliders, the draft, and the answer.

import { html, setText } from '../xray/dom.js';
import { prefixOf } from './conversation.js';
import { distribution, nextToken } from './distribution.js';
import { isOwn, recall } from './prompts.js';
import { inWords } from './stream.js';

const PAUSE = 180; // ms without a change before the engine is asked

/**
 * @param {object} ctx
 * @param {HTMLElement} sliders
 */
export function preview(ctx, sliders) {
  const bars = distribution((token) => ctx.goOn(found, token));
  const said = html('p', { class: 'c-said', role: 'status' });
  const heading = html('span', { class: 'c-where' });
  const element = html('details', { class: 'c-next', ontoggle: () => refresh() },
    html('summary', {}, html('b', {}, 'Next token'), heading), sliders, said, bars.element);
  let timer = null, asking = null, found = null, last = '';

  /** What stands in front of the next token, and how to say so. */
  function prefix() {
    const { conversation } = ctx;
    const draft = conversation.draft.trim();
    const { tip } = conversation;
    if (draft && tip.state !== 'streaming') return [{ messages: conversation.messages(tip, draft) }, 'how the answer to your draft would begin'];
    if (tip.role === 'root') return [null, 'write something, and see how the answer would begin'];
    if (tip.state === 'streaming') return [null, 'the answer is being written'];
    if (tip.role === 'assistant' && isOwn(ctx, tip) && (tip.prompt || tip.tokens.length)) {
      // Behind the end-of-sequence token there is nothing to say.
      const count = tip.reason === 'stop' && tip.tokens.at(-1)?.text === '' ? tip.tokens.length - 1 : tip.tokens.length;
      return [{ answer: tip, count }, 'at the end of the answer'];
    }
    return [{ messages: conversation.messages(tip.role === 'assistant' ? tip.parent : tip) }, 'how the answer would begin'];
  }

  async function ask({ answer: behind, count, ...wanted }) {
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    try {
      if (behind) await recall(ctx, behind, signal);
      const answer = await nextToken(ctx.send, behind ? { prompt: prefixOf(behind, count) } : wanted, ctx.settings, signal);
      if (signal.aborted) return;
      found = answer;
      bars.element.hidden = false;
      bars.show(found);
      setText(said, '');
      element.dataset.asked = String(Number(element.dataset.asked ?? 0) + 1);
    } catch (error) {
      if (!signal.aborted) setText(said, inWords(error));
    }
  }

  function refresh() {
    clearTimeout(timer);
    const [wanted, where] = prefix();
    setText(heading, where);
    const key = JSON.stringify([wanted?.answer ? [wanted.answer.id, wanted.count] : wanted, ctx.settings, ctx.conversation.id]);
    if (!element.open || key === last) return;
    if (!wanted) {
      asking?.abort();
      last = key;
      bars.element.hidden = ctx.conversation.tip.role === 'root';
      return;
    }
    timer = setTimeout(() => { last = key; ask(wanted); }, PAUSE);
  }
  return { element, refresh };
}
