// Tokens go into a KV cache, which keeps each of them, and into a matrix, which absorbs them by the delta rule; copies of
// the matrix are kept behind some blocks, and a second text goes on from one of them.
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

  function matrixOf({ matrix }, x, y, size) {
    return matrix.flatMap((row, at) => row.flatMap((value, column) => {
      const [left, top] = [x + column * size, y + at * size];
      return [svg('rect', { x: left, y: top, width: size, height: size, fill: 'none', stroke: 'var(--y-line)' }),
        square(value, left, top, size, `cell-${at}-${column}`),
        text(left + size / 2, top + size / 2 + 4, show(value), { anchor: 'middle' })];
    }));
  }

  /** The copies, small, from left to right. */
  function copies({ kept, resumed }, track, x, y, size) {
    return kept.map(({ count, matrix }, nth) => {
      const left = x + nth * (4 * size + 14), from = track.shared && count === resumed;
      return svg('g', { 'data-key': `kept-${count}`, 'data-thing': `kept-${count}` },
        matrix.flatMap((row, at) => row.map((value, column) => square(value, left + column * size, y + at * size, size, null))),
        svg('rect', { x: left, y, width: 4 * size, height: 4 * size, fill: 'none', stroke: from ? 'var(--y-green)' : 'currentColor', 'stroke-width': from ? 3 : 1 }),
        text(left + 2 * size, y + 4 * size + 14, `behind ${count}`, { anchor: 'middle' }));
    });
  }

  yaie.stepped('state-absorbs', {
    draw(stage, state, track) {
      const width = room(stage), narrow = isNarrow(stage);
      const cell = narrow ? (width < 340 ? 11 : 14) : 19, words = narrow ? 34 : 48, list = words + 8 * cell + 8;
      const size = Math.min(46, Math.floor((width - list - (narrow ? 30 : 70)) / 4)), side = narrow ? 12 : 24;
      const x = Math.max(list + side + 10, width - 4 * size - (narrow ? 2 : 40)), y = TOP + side + 4;
      const small = narrow ? Math.min(10, Math.floor((width - list - 40) / 9)) : 14;
      const high = Math.max(TOP + track.tokens.length * ROW, y + 4 * size + 34 + 4 * small + 18);
      const left = x - (narrow ? 0 : 10);
      const token = state.found ? track.tokens[state.count - 1] : null;
      stage.append(picture(width, high, state.say,
        text(0, 12, 'KV cache', { bold: true }), text(words, 32, 'key'), text(words + 4 * cell + 6, 32, 'value'),
        cache(state, track, { cell, words }),
        text(x - side - 4, 12, 'state', { bold: true }),
        token ? along(token.k, 'k-now', (at) => ({ x: x - side, y: y + (at + 0.5) * size - (side - 4) / 2 }), side - 4) : null,
        token ? along(state.written, 'u-now', (at) => ({ x: x + (at + 0.5) * size - (side - 4) / 2, y: y - side }), side - 4) : null,
        matrixOf(state, x, y, size),
        text(left, y + 4 * size + 26, state.kept.length ? 'copies' : '', { bold: true }),
        copies(state, track, left, y + 4 * size + 34, small)),
      legend([{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }, 'a number'], [{ fill: 'none', stroke: 'var(--y-orange)', 'stroke-width': 2 }, 'below zero'],
        [{ fill: 'var(--y-green-soft)' }, 'reused'], [{ fill: 'none', stroke: 'var(--y-red)', 'stroke-dasharray': '3 2' }, 'there, and computed again']));
    },
  });
})();
