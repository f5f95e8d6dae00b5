// The block pool as a map: a cell for each block, coloured by owner, with its reference count where there are several.

import { html, setText, sized } from './dom.js';
import { countOf } from './counts.js';
import { describe, kindOf, ownersOf, tally } from './pool-model.js';

/** The largest cell with which all blocks fit into a width and a height. */
export function cellSize(blocks, width, height) {
  for (let size = 44; size > 4; size -= 1) {
    if (Math.ceil(blocks / Math.floor(width / size)) * size <= height) return size;
  }
  return 4;
}

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
  let grid = { size: 10, columns: 1 };

  const blockAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / grid.size);
    const block = Math.floor((event.clientY - box.top) / grid.size) * grid.columns + column;
    return column < grid.columns && block >= 0 && block < ctx.store.header.num_blocks ? block : null;
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
    const from = ctx.focus.block ?? (by > 0 ? -by : 0);
    const block = Math.max(0, Math.min(ctx.store.header.num_blocks - 1, from + by));
    ctx.hover({ block, request: null });
  });
  stage.addEventListener('blur', () => ctx.hover({ block: null, request: null }));

  return {
    title: 'Block pool', name: 'pool', body: [stage, counts],
    note: (state) => `${state.header.num_blocks ?? 0} blocks of ${state.header.block_size ?? 0} tokens`,
    draw() {
      const { store: { state }, names, focus, theme: { now: theme } } = ctx;
      const { num_blocks: blocks = 0 } = state.header;
      const width = stage.clientWidth;
      const size = cellSize(Math.max(1, blocks), width, 300);
      grid = { size, columns: Math.max(1, Math.floor(width / size)) };
      const { context: g } = sized(canvas, Math.max(1, Math.ceil(blocks / grid.columns)) * size);
      g.textAlign = 'center';
      const owners = ownersOf(state);
      const inner = size - (size > 12 ? 3 : 1);
      const changed = new Set((state.record?.refs ?? []).filter(([, by]) => by > 0).map(([block]) => block));
      const focused = focus.request ? new Set(state.requests.get(focus.request)?.table ?? []) : null;
      for (let block = 0; block < blocks; block += 1) {
        const x = (block % grid.columns) * size, y = Math.floor(block / grid.columns) * size;
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
