// Whose code runs: which parts are the learner's, and which the reference's.

import { html } from './dom.js';

/** The panel. */
export function partsView(ctx) {
  const list = html('ul', { class: 'x-parts', 'aria-label': 'Parts of the engine' });
  let drawn = null;
  return {
    title: 'Whose parts run', name: 'parts', body: [list],
    draw() {
      const { parts = [] } = ctx.store.header;
      if (drawn === parts) return;
      drawn = parts;
      list.replaceChildren(...parts.map(({ lab, whose }) => {
        const isYours = whose !== 'reference';
        return html('li', { 'data-yours': String(isYours) },
          html('span', {}, lab.replaceAll('_', ' ')), html('em', {}, isYours ? 'yours' : 'reference'));
      }));
    },
  };
}
