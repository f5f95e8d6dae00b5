// Block tables: for each request, which physical block holds each of its logical ones.

import { chip, keyed, lit } from './chips.js';
import { html, setText } from './dom.js';
import { ownersOf } from './pool-model.js';

const MOST_ROWS = 24, MOST_CELLS = 96;

function updateCells(ctx, cells, id, table) {
  const { state } = ctx.store;
  const owners = ownersOf(state);
  // Of a long table its beginning, which may be shared, and its end, which grows.
  const columns = table.length <= MOST_CELLS ? [...table.keys()]
    : [...table.keys()].filter((column) => column < 32 || column >= table.length - (MOST_CELLS - 32));
  keyed(cells, columns.map((column) => `${column}`), (column) => {
    const cell = html('span', { class: 'x-cell' });
    cell.addEventListener('pointerenter', () => ctx.hover({ block: Number(cell.dataset.block), request: null }));
    cell.addEventListener('pointerleave', () => ctx.hover({ block: null, request: null }));
    cell.dataset.column = column;
    return cell;
  }, (cell, column) => {
    const block = table[column];
    setText(cell, String(block));
    cell.dataset.block = String(block);
    const shared = (owners.get(block)?.length ?? 0) > 1;
    const kind = shared ? 'shared' : state.tree.parent.has(block) ? 'filed' : 'own';
    if (cell.dataset.kind !== kind) cell.dataset.kind = kind;
    const isLit = String(ctx.focus.block === block);
    if (cell.dataset.lit !== isLit) cell.dataset.lit = isLit;
  });
}

/** The panel. */
export function tablesView(ctx) {
  const list = html('ol', { class: 'x-list x-tables', 'aria-label': 'Block tables' });
  const empty = html('p', { class: 'x-empty' }, 'No request holds a block.');
  const legend = html('p', { class: 'x-legend' },
    html('span', {}, html('i', { class: 'x-key x-key-own' }), 'its own'),
    html('span', {}, html('i', { class: 'x-key x-key-filed' }), 'filed in the tree too'),
    html('span', {}, html('i', { class: 'x-key x-key-sharing' }), 'shared with other requests'));
  return {
    title: 'Block tables', name: 'tables', body: [empty, list, legend],
    draw() {
      const { requests } = ctx.store.state;
      const ids = [...requests.values()].filter(({ table }) => table.length).map(({ id }) => id).slice(0, MOST_ROWS);
      empty.hidden = ids.length > 0;
      keyed(list, ids, (id) => {
        const cells = html('span', { class: `x-cells x-hue-${ctx.names.of(id).hue}` });
        return Object.assign(html('li', { ...lit(ctx, { request: id, block: null }) }, chip(ctx, id), cells), { cells });
      }, (row, id) => {
        row.dataset.lit = String(ctx.focus.request === id);
        updateCells(ctx, row.cells, id, requests.get(id).table);
      });
    },
  };
}
