// The conversations: a strip to go from one to another, and below it, when opened, the list in which each is renamed or deleted.

import { arrange, html, setText } from '../xray/dom.js';

const busy = () => html('i', { class: 'c-busy', role: 'img', 'aria-label': 'is being answered' });

function tab(ctx, conversation) {
  const title = html('span', { class: 'c-title' });
  const dot = busy();
  const element = html('button', { type: 'button', class: 'c-tab', onclick: () => ctx.open(conversation) }, title);
  return {
    element,
    draw() {
      const isOpen = ctx.conversation === conversation;
      setText(title, conversation.title);
      arrange(element, conversation.isStreaming ? [dot, title] : [title]);
      if (isOpen) element.setAttribute('aria-current', 'true');
      else element.removeAttribute('aria-current');
    },
  };
}

function row(ctx, conversation, chosen, deleted) {
  const title = html('button', { type: 'button', class: 'c-row-title', onclick: () => chosen(conversation) });
  const input = html('input', { class: 'c-name-input', 'aria-label': 'New name', maxlength: 80, onkeydown: (event) => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      end();
    } else if (event.key === 'Enter' && !event.isComposing) {
      event.preventDefault();
      end(input.value.trim());
    }
  } });
  const rename = html('button', { type: 'button', class: 'c-action', onclick: () => (input.hidden ? begin() : end(input.value.trim())) });
  const remove = html('button', { type: 'button', class: 'c-action', onclick: () => deleted(conversation) }, 'Delete');
  const element = html('li', { class: 'c-row' }, title, input, rename, remove);
  const shown = () => conversation.name || conversation.title;
  input.hidden = true;

  function begin() {
    input.value = shown();
    input.hidden = false;
    draw();
    input.select();
    input.focus();
  }
  /** An empty name gives the first words back. */
  function end(name = null) {
    input.hidden = true;
    if (name !== null && name !== shown()) ctx.rename(conversation, name);
    draw();
    rename.focus();
  }
  function draw() {
    const isNaming = !input.hidden;
    title.hidden = isNaming;
    setText(title, conversation.title);
    if (ctx.conversation === conversation) title.setAttribute('aria-current', 'true');
    else title.removeAttribute('aria-current');
    setText(rename, isNaming ? 'Save' : 'Rename');
    rename.setAttribute('aria-label', `${isNaming ? 'Save the name of' : 'Rename'} ${conversation.title}`);
    remove.setAttribute('aria-label', `Delete ${conversation.title}`);
  }
  return { element, draw, focus: () => title.focus() };
}

/** @param {object} ctx @param {import('./conversation.js').Conversation[]} conversations the oldest first */
export function list(ctx, conversations) {
  const views = new Map();
  let gone = null;
  const strip = html('div', { class: 'c-strip' });
  const all = html('button', { type: 'button', class: 'c-all', 'aria-expanded': 'false', 'aria-controls': 'c-panel', 'aria-label': 'All conversations',
    onclick: () => unfold(panel.hidden) }, 'All');
  const rows = html('ul', { class: 'c-rows' });
  const undone = html('p', { class: 'c-undo', hidden: true }, html('span', {}), html('button', {
    type: 'button', class: 'c-action c-strong', onclick: undo }, 'Undo'));
  const panel = html('div', { id: 'c-panel', class: 'c-panel', hidden: true, onkeydown: (event) => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    unfold(false);
    all.focus();
  } }, undone, rows);
  const element = html('nav', { class: 'c-list', 'aria-label': 'Conversations' },
    html('div', { class: 'c-bar' }, html('button', { type: 'button', class: 'c-new', onclick: ctx.begin }, '+ New'), strip, all), panel);

  function unfold(isOpen) {
    panel.hidden = !isOpen;
    all.setAttribute('aria-expanded', String(isOpen));
    if (!isOpen) gone = null;
    draw();
  }
  function chosen(conversation) {
    ctx.open(conversation);
    unfold(false);
    ctx.focusMessages();
  }
  function deleted(conversation) {
    gone = { conversation, at: conversations.indexOf(conversation) };
    ctx.remove(conversation);
    undone.querySelector('button').focus();
  }
  function undo() {
    const { conversation, at } = gone;
    gone = null;
    ctx.restore(conversation, at);
    views.get(conversation).row.focus();
  }

  function draw() {
    for (const each of views.keys()) if (!conversations.includes(each)) views.delete(each);
    const shown = [...conversations].reverse().map((each) => {
      if (!views.has(each)) views.set(each, { tab: tab(ctx, each), row: row(ctx, each, chosen, deleted) });
      return views.get(each);
    });
    for (const view of shown) {
      view.tab.draw();
      view.row.draw();
    }
    undone.hidden = !gone;
    if (gone) setText(undone.firstChild, `“${gone.conversation.title}” is deleted. `);
    arrange(strip, shown.map((view) => view.tab.element));
    arrange(rows, shown.map((view) => view.row.element));
    const current = views.get(ctx.conversation)?.tab.element;
    if (current && strip.dataset.current !== ctx.conversation.id) {
      strip.dataset.current = ctx.conversation.id;
      strip.scrollLeft = current.offsetLeft - (strip.clientWidth - current.offsetWidth) / 2;
    }
  }
  return { element, draw };
}
