// The chat: conversations, each a tree of messages, of which several may be answered at once.

import { html, setText } from '../xray/dom.js';
import { Conversation } from './conversation.js';
import { message } from './message.js';
import { preview } from './preview.js';
import { sliders } from './settings.js';
import { fill, requestFor } from './stream.js';

const ROOMY = '(min-width: 1080px) and (min-height: 760px)';

/**
 * @param {HTMLElement} element what is in it is replaced
 * @param {{send: Function, address: string, hasKey: () => boolean}} server
 */
export function mountChat(element, { send, address, hasKey }) {
  const conversations = [new Conversation()];
  const set = sliders(() => {
    next.refresh();
    for (const changed of ctx.watchers) changed();
  });
  const views = new Map(); // by turn
  let wanted = false;

  const ctx = {
    send, address, hasKey, settings: set.values, conversation: conversations[0], tokensShown: false,
    watchers: new Set(), // of the sliders
    toggleTokens() { ctx.tokensShown = !ctx.tokensShown; draw(); },
    stop: (turn) => turn.abort.abort(),
    look(parent, index) { parent.chosen = index; draw(); },
    regenerate(turn) { run(ctx.conversation, ctx.conversation.answer(turn.parent)); },
    /** Another branch: the answer up to a token, then the chosen one. */
    branch(turn, index, chosen) {
      run(ctx.conversation, ctx.conversation.answer(turn.parent, turn.prompt,
        [...turn.tokens.slice(0, index), { id: chosen.id, text: chosen.text, logprob: Math.log(chosen.before) }]));
    },
    /** Go on from the end with a token that the distribution shows. */
    goOn(found, chosen) {
      const { conversation } = ctx;
      const { tip } = conversation;
      if (!found || tip.state === 'streaming') return;
      const draft = conversation.draft.trim();
      const token = { id: chosen.id, text: chosen.text, logprob: Math.log(chosen.before) };
      if (!draft && tip.role === 'assistant' && tip.prompt) {
        const count = found.prompt.length - tip.prompt.length;
        ctx.branch(tip, count, chosen);
        return;
      }
      const asked = draft ? conversation.ask(draft) : tip;
      setDraft('');
      run(conversation, conversation.answer(asked, found.prompt, [token]));
    },
  };

  const list = html('nav', { class: 'c-list', 'aria-label': 'Conversations' });
  const system = html('textarea', { rows: 2, placeholder: 'You are a helpful tutor.', oninput: () => {
    ctx.conversation.system = system.value;
    next.refresh();
  } });
  const systemBox = html('details', { class: 'c-system' }, html('summary', {}, 'System prompt'), html('label', {},
    html('span', { class: 'c-hidden' }, 'System prompt'), system));
  const log = html('div', { class: 'c-log', tabindex: 0, role: 'log', 'aria-label': 'Messages', 'aria-live': 'off' });
  const input = html('textarea', { rows: 2, placeholder: 'Ask the engine something', 'aria-label': 'Message',
    oninput: () => { ctx.conversation.draft = input.value; next.refresh(); drawButton(); },
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
    turn.request = requestFor(conversation, turn, ctx.settings);
    draw();
    log.scrollTop = log.scrollHeight;
    await fill(send, turn, redraw);
    draw();
  }

  function begin() {
    const empty = conversations.find(({ root, draft }) => !root.children.length && !draft);
    if (!empty) conversations.push(new Conversation());
    open(empty ?? conversations.at(-1));
    input.focus();
  }

  function open(conversation) {
    ctx.conversation = conversation;
    system.value = conversation.system;
    input.value = conversation.draft;
    draw();
    log.scrollTop = log.scrollHeight;
  }

  function close(conversation) {
    for (const turn of conversation.path) turn.abort?.abort();
    conversations.splice(conversations.indexOf(conversation), 1);
    if (!conversations.length) conversations.push(new Conversation());
    open(conversation === ctx.conversation ? conversations.at(-1) : ctx.conversation);
  }

  function drawList() {
    const items = conversations.map((each) => {
      const isOpen = each === ctx.conversation;
      return html('span', { class: 'c-tab', 'data-open': String(isOpen) },
        html('button', { type: 'button', 'aria-current': isOpen ? 'true' : null, onclick: () => open(each) },
          each.isStreaming ? html('i', { class: 'c-busy', role: 'img', 'aria-label': 'is being answered' }) : null, each.title),
        conversations.length > 1
          ? html('button', { type: 'button', class: 'c-close', 'aria-label': `Close ${each.title}`, onclick: () => close(each) }, '✕') : null);
    });
    const shape = conversations.map((each) => `${each.id}${each.title}${each.isStreaming}${each === ctx.conversation}`).join('|');
    if (list.dataset.shape === shape) return; // or the button that was just pressed would lose the keyboard
    list.dataset.shape = shape;
    const had = [...list.querySelectorAll('button')].indexOf(document.activeElement);
    list.replaceChildren(...items, html('button', { type: 'button', class: 'c-new', onclick: begin }, '+ New'));
    if (had >= 0) list.querySelectorAll('button')[had]?.focus();
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
    if (elements.length !== log.children.length || elements.some((each, index) => each !== log.children[index])) {
      log.replaceChildren(...elements);
    }
    for (const view of shown) view.draw();
    drawList();
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
  } }, list, systemBox, log, next.element, form));
  draw();
  return { ctx, conversations, draw };
}
