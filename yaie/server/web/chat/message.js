// One message of the conversation, and what can be done with it.

import { html, setText } from '../xray/dom.js';
import { alternatives } from './alternatives.js';
import { copyButton } from './clipboard.js';
import { addCopyButtons } from './code-blocks.js';
import { asCurl, asPython } from './copy.js';
import { textOf } from './conversation.js';
import { editor } from './editor.js';
import { markdown } from './markdown.js';
import { isOwn, recall } from './prompts.js';
import { inWords as speedInWords } from './speed.js';
import { requestFor } from './stream.js';
import { tokenView } from './tokens.js';

const action = (words, onclick, more) => html('button', { type: 'button', class: 'c-action', onclick, ...more }, words);

/** The arrows between branches; nothing where there is one. */
function branches(ctx, turn) {
  const { parent } = turn;
  const at = parent.children.indexOf(turn);
  const go = (step) => action(step < 0 ? '‹' : '›', () => ctx.look(parent, at + step, step), {
    'aria-label': step < 0 ? 'The branch before' : 'The next branch', disabled: !parent.children[at + step] });
  if (parent.children.length < 2) return null;
  return html('span', { class: 'c-branches' }, go(-1), html('span', {}, `${at + 1}/${parent.children.length}`), go(1));
}

function told(turn) {
  if (turn.state === 'failed') return turn.error;
  const count = `${turn.tokens.length} token${turn.tokens.length === 1 ? '' : 's'}`;
  if (turn.state === 'stopped') return `Stopped after ${count}.`;
  if (turn.state === 'streaming') return turn.tokens.length ? '' : 'Waits for its first token …';
  if (turn.reason !== 'length') return count;
  if (turn.tokens.length - turn.given >= turn.wanted) return `${count}; cut off by Max tokens: the slider sets how many.`;
  return `${count}; cut off, because the conversation fills the context. + New begins another one.`;
}

function userMessage(ctx, turn) {
  const words = html('div', { class: 'c-words' });
  const edit = action('Edit', () => begin(), { 'aria-label': 'Edit this message' });
  const footer = html('footer', {}, edit);
  const element = html('article', { class: 'c-message c-user', 'aria-label': 'You' }, words, footer);
  let open = null;
  function begin() {
    open = editor(turn, (text) => {
      end();
      if (text !== null && text !== turn.text) ctx.edit(turn, text);
      edit.focus();
    });
    words.hidden = footer.hidden = true;
    element.prepend(open.element);
    open.focus();
    open.element.scrollIntoView({ block: 'nearest' });
  }
  function end() {
    open?.element.remove();
    open = null;
    words.hidden = footer.hidden = false;
  }
  return {
    element,
    draw: () => setText(words, turn.text),
    leave: end,
    focus: () => edit.focus(),
  };
}

function answer(ctx, turn) {
  const words = html('div', { class: 'c-words' });
  const said = html('span', { class: 'c-state' });
  let open = null, drawn = -1, shape = '', hasButtons = false;
  const tokens = tokenView((index, button) => {
    leave();
    if (!isOwn(ctx, turn)) {
      ctx.say(`${turn.model} wrote this answer: its tokens are none of ${ctx.model}.`);
      return;
    }
    open = alternatives(ctx, turn, index, () => button.focus());
    words.after(open.element);
    open.element.scrollIntoView({ block: 'nearest' });
  });
  const kept = html('pre', { class: 'c-copied', tabindex: 0, hidden: true, 'aria-label': 'To be copied by hand', role: 'group' });
  const shown = (text) => {
    kept.hidden = false;
    kept.textContent = text;
    return kept;
  };
  const copies = (label, text) => copyButton(label, text, shown, ctx.say);
  const request = async () => {
    if (turn.given) await recall(ctx, turn);
    return turn.request ?? requestFor(ctx.conversation, turn, turn.settings);
  };
  const written = (write) => async () => write(await request(), ctx.address, ctx.hasKey());
  const copy = copies('Copy', () => textOf(turn));
  copy.setAttribute('aria-description', 'The answer as the model wrote it, in Markdown');
  const seen = action('Tokens', () => ctx.toggleTokens(), { 'aria-pressed': 'false' });
  const stop = action('Stop', () => ctx.stop(turn));
  const again = action('Regenerate', () => ctx.regenerate(turn));
  const requests = html('span', {}, copies('curl', written(asCurl)), copies('Python', written(asPython)));
  const tools = html('span', { class: 'c-tools' }, copy, seen, stop, again, requests);
  const place = html('span', { class: 'c-place' });
  const speed = html('span', { class: 'c-speed', title: 'Tokens of this answer behind the first, by the time in which they reached this browser' });
  const element = html('article', { class: 'c-message c-answer', 'aria-label': 'The model' }, words, kept,
    html('footer', {}, place, said, speed, tools));
  const leave = () => { open?.close(); open = null; };
  return {
    element, leave,
    focus: () => (turn.state === 'streaming' ? stop : again).focus(),
    focusBranch(step) {
      const [before, after] = place.querySelectorAll('button');
      const [same, other] = step < 0 ? [before, after] : [after, before];
      (same.disabled ? other : same).focus();
    },
    draw() {
      const isStreaming = turn.state === 'streaming';
      const now = `${ctx.tokensShown}`;
      if (drawn !== turn.tokens.length || now !== shape) {
        if (ctx.tokensShown) tokens.draw(turn);
        else if (drawn !== turn.tokens.length || shape !== now) words.replaceChildren(...markdown(textOf(turn)));
        if (ctx.tokensShown && now !== shape) words.replaceChildren(tokens.element);
        if (!ctx.tokensShown) leave();
        drawn = turn.tokens.length;
        shape = now;
        hasButtons = false;
      }
      if (!isStreaming && !ctx.tokensShown && !hasButtons) {
        addCopyButtons(words, ctx.say);
        hasButtons = true;
      }
      element.dataset.state = turn.state;
      element.setAttribute('aria-busy', String(isStreaming));
      setText(said, told(turn));
      seen.setAttribute('aria-pressed', String(ctx.tokensShown));
      const hadFocus = document.activeElement === stop && !isStreaming;
      stop.hidden = !isStreaming;
      again.hidden = isStreaming;
      if (hadFocus) again.focus();
      copy.hidden = isStreaming || !turn.tokens.length;
      // Another model's token ids mean nothing to this one.
      requests.hidden = turn.given > 0 && !isOwn(ctx, turn);
      setText(speed, isStreaming ? '' : [speedInWords(turn.speed),
        turn.model && !isOwn(ctx, turn) ? `Written by ${turn.model}.` : ''].filter(Boolean).join(' '));
      const { children } = turn.parent;
      const at = `${children.indexOf(turn)}/${children.length}`;
      if (place.dataset.at !== at) place.replaceChildren(...[branches(ctx, turn)].filter(Boolean));
      place.dataset.at = at;
    },
  };
}

/** @param {object} ctx @param {import('./conversation.js').Turn} turn */
export const message = (ctx, turn) => (turn.role === 'user' ? userMessage(ctx, turn) : answer(ctx, turn));
