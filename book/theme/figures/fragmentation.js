// The same requests under three allocators: memory across, time downwards, and the memory as it is now.
'use strict';

(() => {
  const { html, svg } = yaie;
  const { isNarrow, room, text } = yaie.stage;
  const STYLE = `
    .fragmentation { display: flex; flex-wrap: wrap; gap: 0.6em 1.2em; font: 12px/1.4 var(--mono-font); }
    .fragmentation > div { flex: 1 1 220px; max-width: 240px; }
    @media (max-width: 600px) {
      .fragmentation > div { max-width: none; }
      .fragmentation .sizes { grid-template-columns: auto auto 1fr auto auto 1fr; gap: 0 0.4em; }
    }
    .fragmentation .who { display: flex; flex-wrap: wrap; gap: 0 1.2em; }
    .fragmentation .who > span { min-width: 8em; }
    .fragmentation .sizes { display: grid; grid-template-columns: auto auto 1fr; gap: 0 0.6em;
      margin-top: 0.4em; align-items: center; }
    .fragmentation .sizes svg { display: inline-block; width: 1.4em; height: 1em; margin: 0; }
    .fragmentation .sizes b { text-align: end; }`;
  document.head.append(html('style', {}, STYLE));

  const STRIP = 26, TOP = 16;
  const COLOURS = { a: 'blue', b: 'orange', c: 'green', d: 'purple' };
  const colour = (owner, soft) => `var(--y-${COLOURS[owner.toLowerCase()]}${soft ? '-soft' : ''})`;
  /** Strokes: reserved and empty. Dots: free, and of no use to whoever waits. */
  function patterns(id) {
    const tile = (name, size, shape) => svg('pattern',
      { id: `${name}-${id}`, width: size, height: size, patternUnits: 'userSpaceOnUse' }, shape);
    return svg('defs', {},
      tile('empty', 5, svg('path', { d: 'M-1 1l2-2M0 5l5-5M4 6l2-2', stroke: 'currentColor', 'stroke-width': 0.9 })),
      tile('vain', 6, svg('circle', { cx: 3, cy: 3, r: 1.3, fill: 'currentColor' })));
  }

  const tokens = (piece, at) => Math.min(piece.size, piece.held + at - piece.begin);

  const thing = (piece) => ({ 'data-thing': `request-${piece.owner}` });

  /** What a piece was from when it was taken to `now`: all of it reserved, a growing part filled. */
  function history(piece, now, id, x, y, key) {
    const end = Math.min(piece.end ?? now, now);
    if (piece.begin >= end) return [];
    const full = Math.min(end, piece.begin + piece.size - piece.held);
    const edge = [[piece.held, piece.begin], [tokens(piece, full), full], [tokens(piece, end), end]];
    const filled = [[0, piece.begin], ...edge, [0, end]]
      .map(([slot, at]) => `${x(piece.start + slot)},${y(at)}`).join(' ');
    return [
      svg('rect', { x: x(piece.start), y: y(piece.begin), width: x(piece.size), height: y(end) - y(piece.begin),
        fill: `url(#empty-${id})`, stroke: 'var(--y-line)', 'stroke-width': 0.5, ...thing(piece) }),
      svg('polygon', { points: filled, fill: colour(piece.owner, true), stroke: colour(piece.owner),
        'stroke-width': 0.5, 'data-key': `filled-${key}`, ...thing(piece) }),
    ];
  }

  /** One piece in the strip of the memory as it is now. */
  function present(piece, now, id, x, top, key) {
    const width = x(tokens(piece, now)), middle = x(piece.start) + x(piece.size) / 2;
    return [
      svg('rect', { x: x(piece.start), y: top, width: x(piece.size), height: STRIP, fill: `url(#empty-${id})` }),
      svg('rect', { x: x(piece.start), y: top, width, height: STRIP, fill: colour(piece.owner, true), 'data-key': `tokens-${key}`, ...thing(piece) }),
      svg('rect', { x: x(piece.start), y: top, width: x(piece.size), height: STRIP, fill: 'none',
        stroke: colour(piece.owner), 'stroke-width': 1.2, ...thing(piece) }),
      x(piece.size) < 8 ? null : text(Math.min(middle, x(piece.start) + Math.max(width, 10) / 2), top + 17, piece.owner,
        { anchor: 'middle', bold: true, 'data-key': `owner-${key}`, ...thing(piece) }),
    ];
  }

  /** id: of its patterns, unlike any other's on the page. */
  function memory(id, which, allocator, state, now, data, { WIDTH, MAP }) {
    const x = (slots) => slots * WIDTH / data.slots;
    const y = (at) => TOP + at * MAP / data.last;
    const top = TOP + MAP + 18;
    const strip = { x: 0, y: top, width: WIDTH, height: STRIP };
    const pieces = allocator.pieces.map((piece, index) => ({ ...piece, key: `${which}-${index}` }));
    const live = pieces.filter((piece) => piece.begin <= now && now < (piece.end ?? Infinity));
    const vain = allocator.external.filter(([begin]) => begin < now).map(([begin, end]) => svg('rect',
      { x: 0, y: y(begin), width: WIDTH, height: y(Math.min(end, now)) - y(begin), fill: `url(#vain-${id})` }));
    // Paper behind a piece, where dots would shine through.
    const solid = (piece, begin, height) => (allocator.external.length === 0 ? null : svg('rect', { x: x(piece.start), y: begin, width: x(piece.size),
      height, fill: 'var(--bg)' }));
    return yaie.stage.picture(WIDTH, top + STRIP + 1,
      `${allocator.label}: ${state.held} slots hold a token, ${state.empty} are reserved and empty, `
        + `${state.free} are free${state.vain ? ', but of no use' : ''}`,
      patterns(id),
      text(0, 11, 'steps so far ↓'),
      svg('rect', { x: 0, y: TOP, width: WIDTH, height: MAP, fill: 'none', stroke: 'var(--y-line)',
        'stroke-dasharray': '2 3' }),
      vain,
      pieces.filter((piece) => piece.begin < now).flatMap((piece) => [
        solid(piece, y(piece.begin), y(Math.min(piece.end ?? now, now)) - y(piece.begin)),
        ...history(piece, now, id, x, y, piece.key)]),
      text(0, top - 5, `now, step ${now}`),
      state.vain ? svg('rect', { ...strip, fill: `url(#vain-${id})` }) : null,
      live.flatMap((piece) => [solid(piece, top, STRIP), ...present(piece, now, id, x, top, piece.key)]),
      svg('rect', { ...strip, fill: 'none', stroke: 'currentColor' }));
  }

  /** The counts, which explain the patterns too. */
  function sizes(id, state, narrow) {
    const sample = (fill) => svg('svg', { viewBox: '0 0 14 10', 'aria-hidden': 'true' },
      svg('rect', { x: 0.5, y: 0.5, width: 13, height: 9, fill, stroke: 'currentColor', 'stroke-width': 0.7 }));
    const row = (fill, count, words) => [sample(fill), html('b', {}, count), html('span', {}, words)];
    return html('div', { class: 'sizes' },
      ...row('var(--y-blue-soft)', state.held, 'hold a token'),
      ...row(`url(#empty-${id})`, state.empty, narrow ? 'reserved' : 'reserved, empty (internal)'),
      ...row(`url(#vain-${id})`, state.vain ? state.free : 0, narrow ? 'free, no use' : 'free, but of no use (external)'),
      ...row('none', state.vain ? 0 : state.free, 'free'));
  }

  yaie.stepped('fragmentation', {
    draw(stage, step, data, at, figure) {
      const size = isNarrow(stage) ? { WIDTH: Math.min(340, room(stage)), MAP: 28 } : { WIDTH: 240, MAP: 132 };
      const panel = (allocator, index) => {
        const state = step.states[index];
        const id = `${figure.dataset.name}-${index}`;
        return html('div', {}, html('b', {}, allocator.label),
          memory(id, index, allocator, state, step.at, data, size), sizes(id, state, isNarrow(stage)),
          html('div', { class: 'who' }, html('span', {}, `runs: ${[...state.running].join(' ') || '–'}`),
            html('span', {}, `waits: ${[...state.waiting].join(' ') || '–'}`)));
      };
      stage.append(html('div', { class: 'fragmentation' }, data.allocators.map(panel)));
    },
  });
})();
