// Tokens go into a KV cache, which keeps each of them, and into a matrix, which absorbs them by the delta rule; copies of
// the matrix are kept after some blocks, and a second text goes on from one of them.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const MOST = 8; // the number that fills a cell
  const ROW = 24, TOP = 40;
  const show = (value) => (Math.abs(value) < 0.05 ? '0' : value.toFixed(Math.abs(value) < 9.95 && !Number.isInteger(value) ? 1 : 0).replace('-', '−'));

  /** A number as a square in a cell; below zero it is hollow. */
  function square(value, x, y, size, key) {
    const side = Math.min(1, Math.sqrt(Math.abs(value) / MOST)) * (size - 4);
    const look = value < 0 ? { fill: 'none', stroke: 'var(--y-orange)', 'stroke-width': 2 } : { fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' };
    return svg('rect', { x: x + (size - side) / 2, y: y + (size - side) / 2, width: side, height: side, ...look, 'data-key': key });
  }

  /** The numbers of a vector, each in a cell that `place` puts somewhere. */
  function along(values, key, place, size) {
    return values.flatMap((value, at) => {
      const { x, y } = place(at);
      return [svg('rect', { x, y, width: size, height: size, fill: 'none', stroke: 'var(--y-line)', 'stroke-width': 0.6 }),
        square(value, x, y, size, key && `${key}-${at}`)];
    });
  }
  const strip = (values, x, y, size) => along(values, null, (at) => ({ x: x + at * size, y }), size);

  /** What the KV cache has: a row for each token. */
  function cache(state, track, { cell, words }) {
    const here = Math.max(state.count, state.cached);
    return track.tokens.slice(0, here).map(({ word, k, v }, at) => {
      const y = TOP + at * ROW, again = at >= state.resumed && at < state.cached;
      return svg('g', { 'data-key': `token-${at}`, 'data-thing': `token-${at}` },
        at < state.cached && track.shared ? svg('rect', { x: 0, y, width: words + k.length * cell * 2 + 8, height: ROW - 4, fill: again ? 'none' : 'var(--y-green-soft)',
          stroke: again ? 'var(--y-red)' : 'none', 'stroke-dasharray': '3 2' }) : null,
        text(2, y + 14, word, { bold: at === state.count - 1 && Boolean(state.found) }),
        strip(k, words, y + (ROW - 4 - cell) / 2, cell), strip(v, words + k.length * cell + 6, y + (ROW - 4 - cell) / 2, cell));
    });
  }

  /** The matrix: in each cell the number, and above it a square where there is room. */
  function matrixOf({ matrix }, x, y, size) {
    const room = size - 15;
    return matrix.flatMap((row, at) => row.flatMap((value, column) => {
      const [left, top] = [x + column * size, y + at * size];
      return [svg('rect', { x: left, y: top, width: size, height: size, fill: 'none', stroke: 'var(--y-line)' }),
        room > 12 ? square(value, left + 7.5, top + 1, room, `cell-${at}-${column}`) : null,
        text(left + size / 2, top + size - 4, show(value), { anchor: 'middle' })];
    }));
  }

  /** The copies, small: one below the other, or side by side. */
  function copies({ kept, resumed }, track, { x, y, size, down }) {
    const step = down ? 4 * size + 30 : Math.max(4 * size + 14, 74); // px: a label has 58
    return kept.map(({ count, matrix }, nth) => {
      const [left, top] = down ? [x, y + nth * step] : [x + nth * step, y], from = track.shared && count === resumed;
      return svg('g', { 'data-key': `kept-${count}`, 'data-thing': `kept-${count}` },
        matrix.flatMap((row, at) => row.map((value, column) => square(value, left + column * size, top + at * size, size, null))),
        svg('rect', { x: left, y: top, width: 4 * size, height: 4 * size, fill: 'none', stroke: from ? 'var(--y-green)' : 'currentColor', 'stroke-width': from ? 3 : 1 }),
        text(left + 2 * size, top + 4 * size + 15, `after ${count}`, { anchor: 'middle' }));
    });
  }

  /** Where things lie. Wide: cache, copies, matrix. Narrow: the copies below the matrix. */
  function layout(stage) {
    const width = room(stage), narrow = isNarrow(stage);
    const cell = narrow ? (width < 340 ? 11 : 14) : 19, words = narrow ? 34 : 48, list = words + 8 * cell + 8;
    const side = narrow ? 12 : 24, small = narrow ? 9 : 17;
    const size = Math.min(62, Math.floor((width - list - side - (narrow ? 14 : 130)) / 4));
    const x = width - 4 * size - 2, y = TOP + side + 4;
    const kept = narrow ? { x: x - side, y: y + 4 * size + 30, size: small }
      : { x: (list + x - side) / 2 - 2 * small, y, size: small, down: true };
    return { width, cell, words, side, size, x, y, kept, end: narrow ? kept.y + 4 * small + 20 : y + 4 * size + 4 };
  }

  yaie.stepped('state-absorbs', {
    draw(stage, state, track) {
      const { width, cell, words, side, size, x, y, kept, end } = layout(stage);
      const token = state.found ? track.tokens[state.count - 1] : null, mark = side - 4;
      stage.append(picture(width, Math.max(end, TOP + track.tokens.length * ROW), state.say,
        text(0, 12, 'KV cache', { bold: true }), text(words, 32, 'key'), text(words + 4 * cell + 6, 32, 'value'),
        cache(state, track, { cell, words }),
        text(x - side, 12, 'state', { bold: true }),
        token ? along(token.k, 'k-now', (at) => ({ x: x - side, y: y + (at + 0.5) * size - mark / 2 }), mark) : null,
        token ? along(state.written, 'u-now', (at) => ({ x: x + (at + 0.5) * size - mark / 2, y: y - side }), mark) : null,
        matrixOf(state, x, y, size),
        state.kept.length ? text(kept.x, kept.down ? 12 : kept.y - 8, state.kept.length > 1 ? 'copies' : 'copy', { bold: true }) : null,
        copies(state, track, kept)),
      legend([{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }, 'a number'], [{ fill: 'none', stroke: 'var(--y-orange)', 'stroke-width': 2 }, 'below zero'],
        [{ fill: 'var(--y-green-soft)' }, 'reused'], [{ fill: 'none', stroke: 'var(--y-red)', 'stroke-dasharray': '3 2' }, 'cached, but computed again'],
        [{ fill: 'none', stroke: 'var(--y-green)', 'stroke-width': 3 }, 'resumed from']));
    },
  });
})();
