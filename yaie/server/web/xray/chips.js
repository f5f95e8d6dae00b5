// A request's chip: its letter on its colour. Pointing at one lights the request up everywhere.

import { html } from './dom.js';

/** What lights `focus` up when it is pointed at or has the keyboard's attention. */
export const lit = (ctx, focus) => ({
  onpointerenter: () => ctx.hover(focus),
  onpointerleave: () => ctx.hover({ request: null, block: null }),
});

/** The letter of a request. */
export function chip(ctx, id) {
  const { letter, hue } = ctx.names.of(id);
  return html('b', { class: `x-chip x-hue-${hue}`, title: id }, letter);
}

/** Replaces the children of `parent` by those of `keys`, kept from draw to draw by their key. */
export function keyed(parent, keys, make, update) {
  parent.byKey ??= new Map();
  const next = new Map();
  keys.forEach((key, index) => {
    const child = parent.byKey.get(key) ?? make(key);
    next.set(key, child);
    update(child, key);
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
  });
  for (const [key, child] of parent.byKey) if (!next.has(key)) child.remove();
  const isNew = parent.byKey.size !== next.size;
  parent.byKey = next;
  if (isNew) letScroll(parent);
}

/** What scrolls must be reachable by keyboard, and nothing else. */
export function letScroll(element) {
  if (element.scrollHeight > element.clientHeight + 1) element.setAttribute('tabindex', '0');
  else element.removeAttribute('tabindex');
}
