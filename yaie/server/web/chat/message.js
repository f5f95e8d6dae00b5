// One message of the conversation, and what can be done with it.

import { html, setText } from '../xray/dom.js';
import { alternatives } from './alternatives.js';
import { asCurl, asPython } from './copy.js';
import { textOf } from './conversation.js';
import { markdown } from './markdown.js';
import { tokenView } from './tokens.js';

const action = (words, onclick, more) => html('button', { type: 'button', class: 'c-action', onclick, ...more }, words);

/** The arrows between branches; nothing where there is one. */
function branches(ctx, turn) {
  const { parent } = turn;
  const at = parent.children.indexOf(turn);
  const go = (step) => action(step < 0 ? '‹' : '›', () => ctx.look(parent, at + step), {
    'aria-label': step < 0 ? 'The branch before' : 'The next branch', disabled: !parent.children[at + step] });
  if (parent.children.length < 2) return null;
  return html('span', { class: 'c-branches' }, go(-1), html('span', {}, `${at + 1}/${parent.children.length}`), go(1));
}

function told(turn) {
  if (turn.state === 'failed') return turn.error;
  if (turn.state === 'stopped') return `Stopped after ${turn.tokens.length} tokens.`;
  if (turn.state === 'streaming') return turn.tokens.length ? '' : 'Waits for its first token …';
  const count = `${turn.tokens.length} tokens`;
  if (turn.reason !== 'length') return count;
  if (turn.tokens.length - turn.given >= turn.wanted) return `${count}; cut off by Max tokens: the slider sets how many.`;
  return `${count}; cut off, because the conversation fills the context. + New begins another one.`;
}

function userMessage(ctx, turn) {
  return {
    element: html('article', { class: 'c-message c-user', 'aria-label': 'You' },
      html('div', { class: 'c-words' }, turn.text), html('footer', {}, branches(ctx, turn))),
    draw() {},
  };
}

function answer(ctx, turn) {
  const words = html('div', { class: 'c-words' });
  const said = html('span', { class: 'c-state' });
  let open = null, drawn = -1, shape = '';
  const tokens = tokenView((index, button) => {
    open?.close();
    open = null;
    if (!turn.prompt) return;
    open = alternatives(ctx, turn, index, () => button.focus());
    words.after(open.element);
    open.element.scrollIntoView({ block: 'nearest' });
  });
  const kept = html('pre', { class: 'c-copied', tabindex: 0, hidden: true, 'aria-label': 'The request', role: 'group' });
  const copy = async (text, button, label) => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'Copied';
      setTimeout(() => { button.textContent = label; }, 1500);
    } catch { // without HTTPS a browser may not let us: then by hand
      kept.hidden = false;
      kept.textContent = text;
      kept.focus();
      getSelection().selectAllChildren(kept);
    }
  };
  const copies = (label, write) => action(label, (event) => copy(write(turn.request, ctx.address, ctx.hasKey()), event.currentTarget, label));
  const seen = action('Tokens', () => ctx.toggleTokens(), { 'aria-pressed': 'false' });
  const stop = action('Stop', () => ctx.stop(turn));
  const again = action('Regenerate', () => ctx.regenerate(turn));
  const tools = html('span', { class: 'c-tools' }, seen, stop, again, copies('curl', asCurl), copies('Python', asPython));
  const place = html('span', { class: 'c-place' });
  const element = html('article', { class: 'c-message c-answer', 'aria-label': 'The model' }, words, kept,
    html('footer', {}, place, said, tools));
  return {
    element,
    draw() {
      const isStreaming = turn.state === 'streaming';
      const now = `${ctx.tokensShown}`;
      if (drawn !== turn.tokens.length || now !== shape) {
        if (ctx.tokensShown) tokens.draw(turn);
        else if (drawn !== turn.tokens.length || shape !== now) words.replaceChildren(...markdown(textOf(turn)));
        if (ctx.tokensShown && now !== shape) words.replaceChildren(tokens.element);
        if (!ctx.tokensShown) { open?.close(); open = null; }
        drawn = turn.tokens.length;
        shape = now;
      }
      element.dataset.state = turn.state;
      element.setAttribute('aria-busy', String(isStreaming));
      setText(said, told(turn));
      seen.setAttribute('aria-pressed', String(ctx.tokensShown));
      stop.hidden = !isStreaming;
      again.hidden = isStreaming;
      place.replaceChildren(...[branches(ctx, turn)].filter(Boolean));
    },
  };
}

/** @param {object} ctx @param {import('./conversation.js').Turn} turn */
export const message = (ctx, turn) => (turn.role === 'user' ? userMessage(ctx, turn) : answer(ctx, turn));
