// The block pool as a map: a cell for each block, coloured by owner, with its reference count where there are several.
// A large pool starts zoomed to the rows in use.

import { html, setText, sized } from './dom.js';
import { countOf } from './counts.js';
import { describe, kindOf, ownersOf, tally } from './pool-model.js';
import { Zoom, isLarge, wholeGrid } from './pool-layout.js';

function stripes(g, x, y, size, colours) {
  g.save();
  g.beginPath();
  g.rect(x, y, size, size);
  g.clip();
  const wide = size / 3;
  for (let index = 0; index < 7; index += 1) {
    g.fillStyle = colours[index % colours.length];
    g.beginPath();
    const left = x + (index - 3) * wide;
    g.moveTo(left, y + size);
    g.lineTo(left + size, y);
    g.lineTo(left + size + wide, y);
    g.lineTo(left + wide, y + size);
    g.fill();
  }
  g.restore();
}

function cell(g, theme, kind, x, y, size, hues) {
  if (kind === 'owned') {
    g.fillStyle = hues[0];
    g.fillRect(x, y, size, size);
  } else if (kind === 'shared') {
    stripes(g, x, y, size, hues);
  } else if (kind === 'free') {
    g.strokeStyle = theme.line;
    g.lineWidth = 1;
    if (size > 6) g.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    else { g.fillStyle = theme.faint; g.fillRect(x, y, size, size); }
  } else {
    g.fillStyle = theme.cached;
    g.fillRect(x, y, size, size);
    if (kind === 'cached' && size > 9) {
      g.fillStyle = theme.muted;
      g.beginPath();
      g.arc(x + size / 2, y + size / 2, Math.max(1.5, size / 10), 0, 7);
      g.fill();
    }
  }
}

function badge(g, theme, words, x, y, size) {
  g.font = `600 ${Math.min(12, Math.floor(size * 0.52))}px ${theme.font}`;
  const width = g.measureText(words).width + 5;
  g.fillStyle = theme.card;
  g.beginPath();
  g.roundRect(x + (size - width) / 2, y + size * 0.2, width, size * 0.6, 3);
  g.fill();
  g.fillStyle = theme.ink;
  g.fillText(words, x + size / 2, y + size * 0.5 + 4);
}

/** The first block of each row, and a dotted line where rows are left out. */
function rowLabels(g, theme, { size, columns, left, blocks }, width) {
  g.fillStyle = g.strokeStyle = theme.muted;
  g.font = `${Math.min(11, size)}px ${theme.font}`;
  g.textAlign = 'right';
  g.lineWidth = 1;
  g.setLineDash([1, 4]);
  for (let index = 0; index < blocks.length; index += columns) {
    const y = (index / columns) * size;
    g.fillText(String(blocks[index]), left - 8, y + size / 2 + 3);
    if (blocks[index] === (index ? blocks[index - 1] + 1 : 0)) continue;
    g.beginPath();
    g.moveTo(0, Math.max(0.5, y - 1));
    g.lineTo(width, Math.max(0.5, y - 1));
    g.stroke();
  }
  g.setLineDash([]);
  g.textAlign = 'center';
}

/** The panel. */
export function poolView(ctx) {
  const canvas = html('canvas', { role: 'img', 'aria-label': 'Block pool' });
  const stage = html('div', { class: 'x-stage', tabindex: 0, role: 'group',
    'aria-label': 'Block pool. Arrow keys go from block to block.' }, canvas);
  const counts = html('p', { class: 'x-legend' });
  const parts = ['owned', 'shared', 'cached', 'free'].map((kind) => {
    const number = html('b', {}, '0');
    const words = { owned: 'one request’s', shared: 'shared', cached: 'cached in the tree', free: 'free' }[kind];
    counts.append(html('span', {}, html('i', { class: `x-key x-key-${kind}` }), number, ` ${words}`));
    return [kind, number];
  });
  const zoom = new Zoom();
  let grid = { size: 10, columns: 1, left: 0, blocks: [] }, isWhole = false;
  const whole = html('button', { type: 'button', 'aria-pressed': 'false', onclick: () => {
    isWhole = !isWhole;
    ctx.redraw();
  } }, 'All blocks');
  const tools = html('div', { class: 'x-tools' }, whole);
  const more = html('p', { class: 'x-more' });

  const blockAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - grid.left) / grid.size);
    const row = Math.floor((event.clientY - box.top) / grid.size);
    return column >= 0 && column < grid.columns ? grid.blocks[row * grid.columns + column] ?? null : null;
  };
  canvas.addEventListener('pointermove', (event) => {
    const block = blockAt(event);
    const owners = block == null ? [] : ownersOf(ctx.store.state).get(block) ?? [];
    ctx.hover({ block, request: owners.length === 1 ? owners[0] : null });
  });
  canvas.addEventListener('pointerleave', () => ctx.hover({ block: null, request: null }));
  stage.addEventListener('keydown', (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const here = grid.blocks.indexOf(ctx.focus.block);
    const from = here >= 0 ? here : by > 0 ? -by : 0;
    const index = Math.max(0, Math.min(grid.blocks.length - 1, from + by));
    ctx.hover({ block: grid.blocks[index] ?? null, request: null });
  });
  stage.addEventListener('blur', () => ctx.hover({ block: null, request: null }));

  return {
    title: 'Block pool', name: 'pool', tools, body: [stage, more, counts],
    note: (state) => `${state.header.num_blocks ?? 0} blocks of ${state.header.block_size ?? 0} tokens`,
    draw() {
      const { store: { state }, names, focus, theme: { now: theme } } = ctx;
      const { num_blocks: blocks = 0 } = state.header;
      const width = stage.clientWidth;
      const canZoom = isLarge(blocks, width);
      whole.hidden = !canZoom;
      whole.setAttribute('aria-pressed', String(isWhole));
      grid = canZoom && !isWhole ? zoom.grid(state, width) : wholeGrid(blocks, width);
      const { size, columns, left } = grid;
      const { context: g } = sized(canvas, Math.max(1, Math.ceil(grid.blocks.length / columns)) * size);
      g.textAlign = 'center';
      if (left) rowLabels(g, theme, grid, width);
      setText(more, canZoom ? `${left ? `${blocks - grid.blocks.length} free blocks are left out. ` : ''}`
        + 'To see a pool fill up, start the engine with a small one: --num-blocks 64.' : '');
      const owners = ownersOf(state);
      const inner = size - (size > 12 ? 3 : 1);
      const changed = new Set((state.record?.refs ?? []).filter(([, by]) => by > 0).map(([block]) => block));
      const focused = focus.request ? new Set(state.requests.get(focus.request)?.table ?? []) : null;
      for (const [index, block] of grid.blocks.entries()) {
        const x = left + (index % columns) * size, y = Math.floor(index / columns) * size;
        const kind = kindOf(state, block);
        const ids = owners.get(block) ?? [];
        g.globalAlpha = focused && !focused.has(block) ? 0.25 : 1;
        cell(g, theme, kind, x, y, inner, ids.slice(0, 3).map((id) => theme.hues[names.of(id).hue]));
        if (size >= 15 && kind === 'shared') badge(g, theme, `×${countOf(state.refs, block)}`, x, y, inner);
        else if (size >= 15 && kind === 'owned') {
          g.font = `600 ${Math.min(14, Math.floor(size * 0.5))}px ${theme.font}`;
          g.fillStyle = theme.onHue;
          g.fillText(names.of(ids[0]).letter, x + inner / 2, y + inner / 2 + 4);
        }
        if (size >= 12 && kind === 'owned' && state.tree.parent.has(block)) {
          g.fillStyle = theme.onHue;
          g.beginPath();
          g.arc(x + inner - 4, y + 4, 1.6, 0, 7);
          g.fill();
        }
        if (block === focus.block || (changed.has(block) && size > 6)) {
          g.globalAlpha = 1;
          g.strokeStyle = block === focus.block ? theme.ink : theme.accent;
          g.lineWidth = block === focus.block ? 2.5 : 1.5;
          g.strokeRect(x - 0.5, y - 0.5, inner + 1, inner + 1);
        }
      }
      g.globalAlpha = 1;
      const sums = tally(state);
      for (const [kind, number] of parts) setText(number, String(sums[kind] + (kind === 'cached' ? sums.held : 0)));
      const told = `Block pool: ${sums.owned} blocks of one request, ${sums.shared} shared, ${sums.cached} cached, `
        + `${sums.free} free.`;
      if (canvas.getAttribute('aria-label') !== told) canvas.setAttribute('aria-label', told);
    },
    describe: (state) => (ctx.focus.block == null ? '' : describe(state, ctx.focus.block, (id) => ctx.names.of(id).letter)),
  };
}
