// The timeline: a column for each step, a lane for each request. A high block is a prefill chunk, a low one a
// decode; dots wait. Above, what each step computed of its budget. A record of several steps is a break, since it
// shows none of them.

import { html, sized } from './dom.js';
import { isChunk } from './format.js';
import { ZOOMS, autoZoom, isBreak, lanesOf, scrolled, spansOf, tokensOf } from './timeline-layout.js';

const TOP = 46, BAR = 30, GUTTER = 34, MOST_LANES = 24;

function row(g, theme, x, y, width, height, each, hue, merged) {
  const colour = theme.hues[hue];
  const gap = width > 8 ? 1.5 : 0.5;
  if (isChunk(each, merged)) {
    g.fillStyle = colour;
    g.beginPath();
    g.roundRect(x + gap, y + 1, width - 2 * gap, height - 2, Math.min(3, width / 4));
    g.fill();
    const words = String(each.num_tokens);
    if (!(merged > 1) && height >= 13 && g.measureText(words).width <= width - 2) {
      g.fillStyle = theme.onHue;
      g.fillText(words, x + width / 2, y + height / 2 + 3.5);
    }
    return;
  }
  g.fillStyle = colour;
  const low = Math.max(3, height * 0.34);
  g.fillRect(x + gap, y + (height - low) / 2, width - 2 * gap, low);
  const drawn = each.out?.length ?? 0;
  if (drawn > (merged ?? 1) && width > 10 && height >= 16) g.fillText(`+${drawn}`, x + width / 2, y + 7);
}

function mark(g, theme, x, y, height, kind) {
  g.strokeStyle = kind === 'finished' ? theme.ink : theme.warn;
  g.lineWidth = 2;
  g.beginPath();
  if (kind === 'finished') {
    g.moveTo(x, y + 2);
    g.lineTo(x, y + height - 2);
  } else {
    const reach = Math.min(4.5, height / 2 - 1);
    const middle = y + height / 2;
    g.moveTo(x - reach, middle - reach);
    g.lineTo(x + reach, middle + reach);
    g.moveTo(x + reach, middle - reach);
    g.lineTo(x - reach, middle + reach);
  }
  g.stroke();
}

function bars(g, theme, view, records, budget) {
  const shares = records.map(tokensOf);
  const most = Math.max(8, ...shares.map(([prefill, decode]) => prefill + decode));
  shares.forEach(([prefill, decode], index) => {
    const x = view.x(view.first + index);
    const unit = BAR / most;
    g.fillStyle = theme.accent;
    g.fillRect(x + 0.5, 4 + BAR - (prefill + decode) * unit, view.zoom - 1, prefill * unit);
    g.fillStyle = theme.muted;
    g.fillRect(x + 0.5, 4 + BAR - decode * unit, view.zoom - 1, decode * unit);
  });
  if (budget && budget <= most * 1.05) {
    g.strokeStyle = theme.warn;
    g.setLineDash([4, 3]);
    g.lineWidth = 1;
    g.strokeRect(GUTTER, 4 + BAR - (budget / most) * BAR, view.width - GUTTER, 0);
    g.setLineDash([]);
  }
  g.fillStyle = theme.muted;
  g.textAlign = 'right';
  g.fillText(String(Math.round(most)), GUTTER - 6, 12);
  g.fillText('0', GUTTER - 6, 4 + BAR);
  g.textAlign = 'center';
}

/** Columns of several steps are torn, with the number of steps where it fits. */
function breaks(g, theme, view, records, height) {
  const half = Math.max(1, Math.min(3, view.zoom / 5)), tooth = 5;
  records.forEach((record, index) => {
    if (!isBreak(record)) return;
    const x = view.x(view.first + index) + view.zoom / 2;
    const edge = (side) => {
      g.beginPath();
      for (let y = 0, out = 1; y <= height; y += tooth, out = -out) g.lineTo(x + side * half + (out * half) / 2, y);
    };
    g.setLineDash([]);
    g.strokeStyle = theme.card;
    g.lineWidth = 2 * half;
    edge(0);
    g.stroke();
    g.strokeStyle = theme.muted;
    g.lineWidth = 1;
    for (const side of [-1, 1]) {
      edge(side);
      g.stroke();
    }
    const words = `×${record.merged}`;
    if (g.measureText(words).width + 2 > view.zoom) return;
    g.fillStyle = theme.card;
    g.fillRect(x - view.zoom / 2 + 1, 0, view.zoom - 2, 13);
    g.fillStyle = theme.ink;
    g.fillText(words, x, 10);
  });
}

function drawLanes(g, theme, view, ctx, records, lanes) {
  const { names, focus } = ctx;
  const laneY = (id) => TOP + 6 + lanes.get(id) * view.lane;
  records.forEach((record, index) => {
    const x = view.x(view.first + index);
    for (const id of record.waiting ?? []) {
      if (!lanes.has(id)) continue;
      g.globalAlpha = focus.request && focus.request !== id ? 0.25 : 1;
      g.fillStyle = theme.muted;
      g.fillRect(x + view.zoom / 2 - 1, laneY(id) + view.lane / 2 - 1, 2, 2);
    }
    for (const each of record.rows ?? []) {
      g.globalAlpha = focus.request && focus.request !== each.id ? 0.25 : 1;
      row(g, theme, x, laneY(each.id), view.zoom, view.lane, each, names.of(each.id).hue, record.merged);
    }
    g.globalAlpha = 1;
    for (const [id] of record.preempted ?? []) {
      if (lanes.has(id)) mark(g, theme, x + view.zoom / 2, laneY(id), view.lane, 'preempted');
    }
    for (const [id] of record.finished ?? []) {
      if (lanes.has(id)) mark(g, theme, x + view.zoom - 1, laneY(id), view.lane, 'finished');
    }
  });
}

function labels(g, theme, view, ctx, spans, { lanes, shared }) {
  g.textAlign = shared ? 'left' : 'right';
  // Where lanes are narrower than letters, every second or third has one, and the one that is pointed at.
  const every = Math.ceil(11 / view.lane);
  for (const { id, first } of spans) {
    const { letter, hue } = ctx.names.of(id);
    const isFocused = ctx.focus.request === id;
    if (lanes.get(id) % every && !isFocused) continue;
    if (ctx.focus.request && !isFocused && every > 1) continue;
    const y = TOP + 6 + lanes.get(id) * view.lane + view.lane / 2 + 4;
    g.font = `600 ${view.lane < 14 ? 10 : 12}px ${theme.font}`;
    g.globalAlpha = ctx.focus.request && !isFocused ? 0.35 : 1;
    g.fillStyle = theme.hues[hue];
    g.fillText(letter, shared ? Math.max(GUTTER, view.x(first) - 14) : GUTTER - 8, y);
  }
  g.globalAlpha = 1;
  g.textAlign = 'center';
}

function axis(g, theme, view, records, cursor) {
  const every = [1, 2, 5, 10, 20, 50, 100].find((count) => count * view.zoom >= 40) ?? 200;
  g.font = `11px ${theme.font}`;
  records.forEach((record, index) => {
    const here = view.first + index === cursor;
    if (!here && (record.n % every || Math.abs(view.first + index - cursor) * view.zoom < 26)) return;
    g.fillStyle = here ? theme.ink : theme.muted;
    if (here) g.font = `700 11px ${theme.font}`;
    const x = Math.max(GUTTER + 8, Math.min(view.width - 12, view.x(view.first + index) + view.zoom / 2));
    g.fillText(String(record.n), x, TOP);
    if (here) g.font = `11px ${theme.font}`;
  });
}

/** The panel. ctx: what all views share (see mount.js). */
export function timelineView(ctx) {
  const canvas = html('canvas', { role: 'img', 'aria-label': 'Timeline of steps' });
  const stage = html('div', {
    class: 'x-stage', tabindex: 0, role: 'group',
    'aria-label': 'Timeline. Left and right arrow keys go from step to step.',
  }, canvas);
  const zoomed = (by) => () => {
    chosen = Math.max(0, Math.min(ZOOMS.length - 1, zoom + by));
    ctx.redraw();
  };
  const tools = html('div', { class: 'x-tools' },
    html('button', { type: 'button', 'aria-label': 'Narrower steps', onclick: zoomed(-1) }, '−'),
    html('button', { type: 'button', 'aria-label': 'Wider steps', onclick: zoomed(1) }, '+'));
  const peeks = html('span', { hidden: true }, html('i', { class: 'x-key x-key-peek' }, '?'), '“Next token” looks ahead');
  const legend = html('p', { class: 'x-legend' },
    html('span', {}, html('i', { class: 'x-key x-key-prefill' }), 'prefill chunk, with its tokens'),
    html('span', {}, html('i', { class: 'x-key x-key-decode' }), 'decode, one token'),
    html('span', {}, html('i', { class: 'x-key x-key-waits' }), 'waits'),
    html('span', {}, html('i', { class: 'x-key-mark x-warn' }, '✕'), 'preempted'),
    html('span', {}, html('i', { class: 'x-key-mark' }, '▏'), 'ended'), peeks);
  let chosen = null, zoom = 3, view = null, lanes = new Map();

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const index = view.first + Math.floor((x - GUTTER) / view.zoom);
    const lane = Math.floor((y - TOP - 6) / view.lane);
    return { index, inside: x >= GUTTER && index < view.first + view.count,
      ids: [...lanes].filter(([, number]) => number === lane).map(([id]) => id) };
  };
  const named = ({ index, ids }) => {
    const record = ctx.store.records[index];
    const inStep = new Set([...(record?.rows ?? []).map(({ id }) => id), ...(record?.waiting ?? [])]);
    return ids.find((id) => inStep.has(id)) ?? ids[0] ?? null;
  };
  let dragging = false;
  const go = (event) => {
    const found = at(event);
    if (found.index >= 0) ctx.store.seek(Math.min(found.index, ctx.store.records.length - 1));
  };
  canvas.addEventListener('pointerdown', (event) => {
    dragging = true;
    canvas.setPointerCapture(event.pointerId);
    go(event);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!view) return;
    if (dragging) go(event);
    else ctx.hover({ request: named(at(event)), block: null });
  });
  for (const end of ['pointerup', 'pointercancel']) canvas.addEventListener(end, () => { dragging = false; });
  canvas.addEventListener('pointerleave', () => ctx.hover({ request: null, block: null }));
  stage.addEventListener('keydown', (event) => {
    const { store } = ctx;
    const goal = { ArrowLeft: store.cursor - 1, ArrowRight: store.cursor + 1, Home: 0, End: store.records.length - 1,
      PageUp: store.cursor - 20, PageDown: store.cursor + 20 }[event.key];
    if (goal === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    store.seek(goal);
  });

  return {
    title: 'Timeline', name: 'timeline', tools, body: [stage, legend],
    draw() {
      const { store, theme: { now: theme } } = ctx;
      const width = stage.clientWidth;
      zoom = chosen ?? autoZoom(store.records.length, width - GUTTER);
      const fit = Math.max(1, Math.floor((width - GUTTER) / ZOOMS[zoom]));
      const first = scrolled(view?.first ?? 0, fit, store.records.length, store.cursor);
      const count = Math.min(fit, store.records.length - first);
      const records = store.records.slice(first, first + count);
      const spans = spansOf(store.records, first, first + count, (id) => ctx.names.of(id).order);
      const laid = lanesOf(spans, MOST_LANES);
      lanes = laid.lanes;
      const lane = Math.max(8, Math.min(24, Math.floor(340 / Math.max(1, laid.count))));
      const height = TOP + 12 + Math.max(2, laid.count) * lane;
      const { context: g } = sized(canvas, height);
      view = { first, count, zoom: ZOOMS[zoom], lane, width, x: (index) => GUTTER + (index - first) * ZOOMS[zoom] };
      g.font = `11px ${theme.font}`;
      g.textAlign = 'center';
      if (store.cursor >= first && count) {
        g.fillStyle = theme.soft;
        g.fillRect(view.x(store.cursor), 0, view.zoom, height);
      }
      bars(g, theme, view, records, store.header.token_budget);
      g.font = `${lane >= 16 ? 10.5 : 9}px ${theme.font}`;
      drawLanes(g, theme, view, ctx, records, lanes);
      breaks(g, theme, view, records, height);
      peeks.hidden = !spans.some(({ id }) => ctx.names.isPeek(id));
      labels(g, theme, view, ctx, spans, laid);
      axis(g, theme, view, records, store.cursor);
      const torn = records.filter(isBreak).length;
      const told = `Timeline: ${count} of ${store.records.length} kept steps, ${spans.length} request${spans.length === 1 ? '' : 's'}.`
        + (torn ? ` Breaks: ${torn}, each of several steps.` : '');
      if (canvas.getAttribute('aria-label') !== told) canvas.setAttribute('aria-label', told);
    },
  };
}
