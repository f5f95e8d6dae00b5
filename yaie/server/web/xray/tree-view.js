// The radix tree, from the recorded calls of its contract: matches, splits, insertions, locks, evictions.

import { html, setText, svg } from './dom.js';
import { ownersOf } from './pool-model.js';
import { layout } from './tree-layout.js';
import { numEvictable } from './tree-model.js';

const CELL = 30, HEIGHT = 22, ROW = 40, LEFT = 20, TOP = 14;

function padlock(x, y, count) {
  return svg('g', { class: 'x-lock', transform: `translate(${x} ${y})` },
    svg('rect', { x: 0, y: 4, width: 9, height: 7, rx: 1.5 }),
    svg('path', { d: 'M2 4V2.6a2.5 2.5 0 0 1 5 0V4', fill: 'none' }),
    svg('text', { x: 13, y: 11 }, String(count)));
}

function cellOf(ctx, state, block, x, y, marks, gap) {
  if (block === null) {
    return svg('text', { class: 'x-gap', x: x + CELL / 2, y: y + 15, 'text-anchor': 'middle' }, `+${gap}`);
  }
  const owners = ownersOf(state).get(block) ?? [];
  const hue = owners.length === 1 ? ` x-hue-${ctx.names.of(owners[0]).hue}` : '';
  const kind = owners.length > 1 ? 'shared' : owners.length ? 'owned' : 'cached';
  const group = svg('g', { class: `x-block x-${kind}${hue}`, 'data-block': block,
    'data-lit': ctx.focus.block === block || (ctx.focus.request && owners.includes(ctx.focus.request)) ? 'true' : null },
    svg('rect', { x: x + 1, y, width: CELL - 2, height: HEIGHT, rx: 3, class: marks.get(block) ?? null }),
    svg('text', { x: x + CELL / 2, y: y + 15.5, 'text-anchor': 'middle' }, String(block)));
  return group;
}

function picture(ctx, state, { rows, columns }, marks) {
  const xOf = (row) => LEFT + row.column * CELL + (row.above ? depth(row) * 6 : 0);
  const width = LEFT + columns * CELL + 120, height = TOP + Math.max(1, rows.length) * ROW;
  const edges = rows.map((row) => {
    const x = xOf(row), y = TOP + row.y * ROW + HEIGHT / 2;
    const from = row.above ? { x: xOf(row.above) + row.above.cells.length * CELL - 4, y: TOP + row.above.y * ROW + HEIGHT }
      : { x: 7, y: 8 };
    return svg('path', { class: 'x-edge', d: `M${from.x} ${from.y}V${y - 6}q0 6 6 6H${Math.max(from.x + 6, x)}` });
  });
  const boxes = rows.flatMap((row) => {
    const x = xOf(row), y = TOP + row.y * ROW;
    const end = x + row.cells.length * CELL;
    return [
      ...row.cells.map((block, index) => cellOf(ctx, state, block, x + index * CELL, y, marks, row.gap)),
      svg('rect', { class: row.locks ? 'x-node x-locked' : 'x-node', x: x - 1, y: y - 2,
        width: end - x + 2, height: HEIGHT + 4, rx: 5 }),
      row.locks ? padlock(end + 7, y + 5, row.locks) : null,
    ];
  });
  return svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img',
    'aria-label': `Radix tree with ${rows.length} nodes drawn` },
    svg('circle', { class: 'x-root', cx: 7, cy: 6, r: 4 }), edges, boxes);
}

const depth = (row) => (row.above ? 1 + depth(row.above) : 0);

/** What the step's calls did, as a list of short sentences. */
export function tellEvents(events) {
  const listed = (blocks) => (blocks.length > 6 ? `${blocks.slice(0, 5).join(', ')} … (${blocks.length})` : blocks.join(', '));
  return events.flatMap(({ kind, blocks, fresh }) => {
    if (kind === 'match') return blocks.length ? [['match', `match finds ${listed(blocks)}`]] : [];
    if (kind === 'insert') return fresh.length ? [['insert', `insert files ${listed(fresh)}`]] : [];
    if (kind === 'split') return [['split', `a node is split after ${blocks[0]}`]];
    if (kind === 'evict') return [['evict', `evict takes ${listed(blocks)}`]];
    return blocks.length ? [[kind, `${kind} down to ${blocks[0]}`]] : [];
  });
}

/** The panel. */
export function treeView(ctx) {
  const stage = html('div', { class: 'x-stage x-scrolls', tabindex: 0, role: 'group', 'aria-label': 'Radix tree, scrolls' });
  const calls = html('ul', { class: 'x-calls', 'aria-label': 'Calls of the radix tree in this step' });
  const summary = html('p', { class: 'x-more' });
  let drawn = null;
  stage.addEventListener('pointerover', (event) => {
    const block = event.target.closest?.('[data-block]')?.dataset.block;
    if (block !== undefined) ctx.hover({ block: Number(block), request: null });
  });
  stage.addEventListener('pointerleave', () => ctx.hover({ block: null, request: null }));
  return {
    title: 'Radix tree', name: 'tree', body: [calls, stage, summary],
    note: (state) => (state.partial ? 'contents from before this page was opened are unknown' : ''),
    draw() {
      const { store: { state }, focus } = ctx;
      const key = [state.tree, state.record, state.requests, focus.block, focus.request, ctx.theme.now];
      if (drawn && key.every((part, index) => part === drawn[index])) return;
      drawn = key;
      const marks = new Map();
      for (const { kind, blocks, fresh } of state.events) {
        if (kind === 'match') blocks.forEach((block) => marks.set(block, 'x-match'));
        if (kind === 'insert') fresh.forEach((block) => marks.set(block, 'x-fresh'));
      }
      const laid = layout(state.tree, new Set(marks.keys()));
      stage.replaceChildren(laid.rows.length ? picture(ctx, state, laid, marks)
        : html('p', { class: 'x-empty' }, state.header.prefix_caching === false
          ? 'Prefix caching is off: there is no tree.' : 'The tree is empty.'));
      const told = tellEvents(state.events);
      calls.replaceChildren(...told.slice(-8).map(([kind, words]) => html('li', { 'data-kind': kind }, words)));
      const size = state.tree.parent.size;
      setText(summary, `${size} ${size === 1 ? 'block' : 'blocks'} filed, ${numEvictable(state.tree)} evictable, `
        + `${state.evicted} evicted so far${laid.hidden ? `; ${laid.hidden} nodes not drawn` : ''}.`);
    },
  };
}
