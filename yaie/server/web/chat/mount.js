// The chat: conversations, each a tree of messages, of which several may be answered at once.

import { arrange, html, setText } from '../xray/dom.js';
import { Conversation } from './conversation.js';
import { foot } from './foot.js';
import { Keeper } from './keeper.js';
import { list } from './list.js';
import { message } from './message.js';
import { modelName } from './model-name.js';
import { preview } from './preview.js';
import { isOwn } from './prompts.js';
import { sliders } from './settings.js';
import { fill, requestFor } from './stream.js';

const ROOMY = '(min-width: 1080px) and (min-height: 760px)';

/**
 * @param {HTMLElement} element what is in it is replaced
 * @param {{send: Function, address: string, hasKey: () => boolean, kept: import('../storage.js').Kept,
 *   named: (model: string) => void}} page `named` hears how the model is called
 */
export function mountChat(element, { send, address, hasKey, kept, named }) {
  const keeper = new Keeper(kept, () => bottom.draw());
  const { conversations, open: lastOpen } = keeper.load();
  if (!conversations.length) conversations.push(new Conversation());
  const set = sliders(() => {
    next.refresh();
    for (const changed of ctx.watchers) changed();
  });
  const views = new WeakMap(); // by turn
  let wanted = false;

  const ctx = {
    send, address, hasKey, settings: set.values, tokensShown: false, model: null,
    conversation: conversations.find(({ id }) => id === lastOpen) ?? conversations.at(-1),
    watchers: new Set(), // of the sliders
    begin, open,
    say: (words) => { spoken.textContent = words; },
    focusMessages: () => log.focus(),
    toggleTokens() { ctx.tokensShown = !ctx.tokensShown; draw(); },
    stop: (turn) => turn.abort.abort(),
    look(parent, index, step) {
      parent.chosen = index;
      keeper.change(ctx.conversation);
      draw();
      views.get(parent.children[index]).focusBranch(step);
    },
    regenerate(turn) {
      const made = ctx.conversation.answer(turn.parent);
      run(ctx.conversation, made);
      views.get(made).focus();
    },
    edit(turn, text) {
      const { conversation } = ctx;
      leave(conversation.edit(turn, text));
      run(conversation, conversation.answer(turn));
    },
    rename(conversation, name) {
      conversation.name = name;
      keeper.change(conversation);
      draw();
    },
    remove(conversation) {
      ctx.say(`${conversation.title} is deleted.`);
      leave(conversation.turns);
      conversations.splice(conversations.indexOf(conversation), 1);
      keeper.forget(conversation);
      if (!conversations.length) conversations.push(new Conversation());
      open(conversation === ctx.conversation ? conversations.at(-1) : ctx.conversation);
    },
    /** A deleted one comes back, where it was. */
    restore(conversation, at) {
      conversations.splice(at, 0, conversation);
      keeper.change(conversation);
      open(conversation);
    },
    /** Another branch: the answer up to a token, then the chosen one. */
    branch(turn, index, chosen) {
      const made = ctx.conversation.answer(turn.parent, turn.prompt,
        [...turn.tokens.slice(0, index), { id: chosen.id, text: chosen.text, logprob: Math.log(chosen.before) }]);
      run(ctx.conversation, made);
      if (document.activeElement === document.body) views.get(made).focus(); // the alternatives have gone
    },
    /** Go on from the end with a token that the distribution shows. */
    goOn(found, chosen) {
      const { conversation } = ctx;
      const { tip } = conversation;
      if (!found || tip.state === 'streaming') return;
      const draft = conversation.draft.trim();
      const token = { id: chosen.id, text: chosen.text, logprob: Math.log(chosen.before) };
      if (!draft && tip.role === 'assistant' && tip.prompt && isOwn(ctx, tip)) {
        const count = found.prompt.length - tip.prompt.length;
        ctx.branch(tip, count, chosen);
        return;
      }
      const asked = draft ? conversation.ask(draft) : tip.role === 'assistant' ? tip.parent : tip;
      setDraft('');
      run(conversation, conversation.answer(asked, found.prompt, [token]));
    },
  };

  const spoken = html('p', { class: 'c-hidden', role: 'status' });
  const top = list(ctx, conversations);
  const bottom = foot(keeper, (isOn) => {
    keeper.turn(isOn, conversations);
    keeper.opened(ctx.conversation);
    if (!isOn) ctx.say('What was kept has been deleted.');
  });
  const system = html('textarea', { rows: 2, placeholder: 'You are a helpful tutor.', oninput: () => {
    ctx.conversation.system = system.value;
    keeper.change(ctx.conversation);
    next.refresh();
  } });
  const systemTitle = html('summary', {}, 'System prompt');
  const systemBox = html('details', { class: 'c-system' }, systemTitle, html('label', {},
    html('span', { class: 'c-hidden' }, 'System prompt'), system));
  const log = html('div', { class: 'c-log', tabindex: 0, role: 'log', 'aria-label': 'Messages', 'aria-live': 'off' });
  const input = html('textarea', { rows: 2, placeholder: 'Ask the engine something', 'aria-label': 'Message',
    oninput: () => { ctx.conversation.draft = input.value; keeper.change(ctx.conversation); next.refresh(); drawButton(); },
    onkeydown: (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      submit();
    } });
  const button = html('button', { class: 'c-send' }, 'Send');
  const form = html('form', { class: 'c-compose', onsubmit: (event) => { event.preventDefault(); submit(); } }, input, button);
  const next = preview(ctx, set.element);
  next.element.open = matchMedia(ROOMY).matches;

  function setDraft(text) {
    ctx.conversation.draft = text;
    input.value = text;
  }

  function submit() {
    const { conversation } = ctx;
    if (conversation.tip.state === 'streaming') {
      if (document.activeElement === button) ctx.stop(conversation.tip);
      return;
    }
    const text = conversation.draft.trim();
    if (!text) return;
    const asked = conversation.ask(text);
    setDraft('');
    run(conversation, conversation.answer(asked));
  }

  async function run(conversation, turn) {
    Object.assign(turn, { settings: { ...ctx.settings }, model: ctx.model });
    turn.request = requestFor(conversation, turn, ctx.settings);
    keeper.change(conversation);
    draw();
    log.scrollTop = log.scrollHeight;
    await fill(send, turn, redraw);
    know(turn.model);
    if (conversations.includes(conversation)) keeper.change(conversation);
    if (conversation.tip === turn && turn.state === 'done') ctx.say(`${conversation.title}: answered.`);
    draw();
  }

  /** Turns that are dropped: what they do ends. */
  function leave(turns) {
    for (const turn of turns) {
      turn.abort?.abort();
      views.get(turn)?.leave();
    }
  }

  function know(model) {
    if (!model || model === ctx.model) return;
    ctx.model = model;
    bottom.name(model);
    named(model);
    draw();
  }

  function begin() {
    const empty = conversations.find((each) => each.isEmpty);
    if (!empty) conversations.push(new Conversation());
    open(empty ?? conversations.at(-1));
    input.focus();
  }

  function open(conversation) {
    ctx.conversation = conversation;
    system.value = conversation.system;
    input.value = conversation.draft;
    keeper.opened(conversation);
    draw();
    log.scrollTop = log.scrollHeight;
  }

  function drawButton() {
    const isStreaming = ctx.conversation.tip.state === 'streaming';
    setText(button, isStreaming ? 'Stop' : 'Send');
    button.disabled = !isStreaming && !ctx.conversation.draft.trim();
  }

  function draw() {
    const stays = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    const { path } = ctx.conversation;
    const shown = path.map((turn) => {
      if (!views.has(turn)) views.set(turn, message(ctx, turn));
      return views.get(turn);
    });
    const elements = shown.length ? shown.map(({ element: each }) => each) : [hello];
    arrange(log, elements);
    for (const view of shown) view.draw();
    top.draw();
    setText(systemTitle, ctx.conversation.system.trim() ? 'System prompt (set)' : 'System prompt');
    drawButton();
    next.refresh();
    if (stays) log.scrollTop = log.scrollHeight;
  }

  /** Once a frame, however many tokens come. */
  function redraw() {
    if (wanted) return;
    wanted = true;
    const now = () => { wanted = false; draw(); };
    if (document.hidden) setTimeout(now, 200);
    else requestAnimationFrame(now);
  }

  const starters = ['What is a KV cache?', 'Why is decode slow?', 'What does temperature do?'].map((text) =>
    html('button', { type: 'button', class: 'c-starter', onclick: () => { setDraft(text); submit(); } }, text));
  const hello = html('div', { class: 'c-hello' }, html('p', {}, 'Ask something, and see on the other side what the engine does for it. '
    + 'Click any token of an answer to see the alternatives and to continue from one.'),
  html('p', { class: 'c-starters' }, starters));

  element.replaceChildren(html('div', { class: 'chat', onkeydown: (event) => {
    if (event.key === 'Escape' && ctx.conversation.tip.state === 'streaming') ctx.stop(ctx.conversation.tip);
  } }, top.element, systemBox, log, next.element, form, bottom.element, spoken));
  // A page that goes, or is put aside, may not come back.
  const write = () => {
    for (const each of conversations) if (each.isStreaming) keeper.change(each);
    keeper.write();
  };
  window.addEventListener('pagehide', () => {
    // The browser ends their requests: stopped, not failed.
    for (const turn of conversations.flatMap(({ turns }) => turns)) turn.abort?.abort();
    write();
  });
  document.addEventListener('visibilitychange', () => { if (document.hidden) write(); });
  window.addEventListener('storage', () => bottom.draw()); // another tab
  open(ctx.conversation);
  bottom.draw();
  modelName(send).then(know);
  return { ctx, conversations, draw, keeper };
}
