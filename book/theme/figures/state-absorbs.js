// Tokens go into a KV cache, which keeps each of them, and into a matrix, which absorbs them by the delta rule; copies of
// the matrix are kept behind some blocks, and a second text goes on from one of them.
'use strict';

const stateAbsorbs = (() => {
  const zeros = (rows, columns) => Array.from({ length: rows }, () => Array(columns).fill(0));

  /** What a key reads in a matrix: its transpose times the key. */
  const read = (matrix, key) => matrix[0].map((_, column) => matrix.reduce((sum, row, at) => sum + row[column] * key[at], 0));

  /** One token: the matrix fades, the key reads, the difference is written. Returns { matrix, found, written }. */
  function absorb(matrix, { k, v, beta = 1, decay = 1 }) {
    const faded = matrix.map((row) => row.map((value) => decay * value));
    const found = read(faded, k);
    const written = v.map((value, at) => beta * (value - found[at]));
    return { matrix: faded.map((row, at) => row.map((value, column) => value + k[at] * written[column])), found, written };
  }

  /**
   * The states of one text: before its first token, and behind each. block: tokens of one; every: blocks from one checkpoint to
   * the next. shared: how many of its first tokens another text has had alike, whose blocks and checkpoints are there.
   */
  function run({ tokens, block, every, shared = 0 }) {
    const [rows, columns] = [tokens[0].k.length, tokens[0].v.length];
    let matrix = zeros(rows, columns);
    const kept = [], states = [];
    const keep = (count) => { if (count % (block * every) === 0) kept.push({ count, matrix }); };
    const cached = shared - (shared % block); // whole blocks alone can be reused
    const resumed = cached - (cached % (block * every));
    for (let at = 0; at < resumed; at += 1) { ({ matrix } = absorb(matrix, tokens[at])); keep(at + 1); }
    states.push({ count: resumed, matrix, kept: [...kept], cached, resumed, token: null, found: null, written: null });
    for (let at = resumed; at < tokens.length; at += 1) {
      const step = absorb(matrix, tokens[at]);
      ({ matrix } = step);
      keep(at + 1);
      states.push({ count: at + 1, kept: [...kept], cached, resumed, token: tokens[at], ...step });
    }
    return states;
  }

  return { absorb, read, run };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const MOST = 8; // the number that fills a cell
  const ROW = 24, TOP = 40;
  const show = (value) => (Math.abs(value) < 0.05 ? '0' : value.toFixed(Math.abs(value) < 9.95 && !Number.isInteger(value) ? 1 : 0).replace('-', '−'));
  const vector = (values) => `(${values.map(show).join(', ')})`;

  /** A number as a square in a cell; below zero it is hollow. */
  function square(value, x, y, size, key) {
    const side = Math.min(1, Math.sqrt(Math.abs(value) / MOST)) * (size - 4);
    const look = value < 0 ? { fill: 'none', stroke: 'var(--y-orange)', 'stroke-width': 2 } : { fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' };
    return svg('rect', { x: x + (size - side) / 2, y: y + (size - side) / 2, width: side, height: side, ...look, 'data-key': key });
  }

  /** A vector as a strip of cells. */
  function strip(values, x, y, size, key, { down = false } = {}) {
    return values.flatMap((value, at) => {
      const [left, top] = down ? [x, y + at * size] : [x + at * size, y];
      return [svg('rect', { x: left, y: top, width: size, height: size, fill: 'none', stroke: 'var(--y-line)', 'stroke-width': 0.6 }),
        square(value, left, top, size, `${key}-${at}`)];
    });
  }

  /** What the KV cache has: a row for each token. */
  function cache(state, track, { cell, words }) {
    const here = Math.max(state.count, state.cached);
    return track.tokens.slice(0, here).map(({ word, k, v }, at) => {
      const y = TOP + at * ROW, again = at >= state.resumed && at < state.cached;
      return svg('g', { 'data-key': `token-${at}`, 'data-thing': `token-${at}` },
        at < state.cached && track.shared ? svg('rect', { x: 0, y, width: words + k.length * cell * 2 + 8, height: ROW - 4, fill: again ? 'none' : 'var(--y-green-soft)',
          stroke: again ? 'var(--y-red)' : 'none', 'stroke-dasharray': '3 2' }) : null,
        text(2, y + 14, word, { bold: at === state.count - 1 && Boolean(state.token) }),
        strip(k, words, y + (ROW - 4 - cell) / 2, cell, `k-${at}`), strip(v, words + k.length * cell + 6, y + (ROW - 4 - cell) / 2, cell, `v-${at}`));
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
        matrix.flatMap((row, at) => row.map((value, column) => square(value, left + column * size, y + at * size, size, `kept-${count}-${at}-${column}`))),
        svg('rect', { x: left, y, width: 4 * size, height: 4 * size, fill: 'none', stroke: from ? 'var(--y-green)' : 'currentColor', 'stroke-width': from ? 3 : 1 }),
        text(left + 2 * size, y + 4 * size + 14, `behind ${count}`, { anchor: 'middle' }));
    });
  }

  const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;

  function say(state, track) {
    const { count, token, found, matrix, cached, resumed, kept } = state;
    if (!token) {
      return track.shared ? `The first ${track.shared} tokens are those of the other text. Keys and values of ${cached} are there, in whole blocks. The last copy of `
        + `the matrix is behind ${resumed}: the text goes on from there, and ${plural(cached - resumed, 'token')} must be computed again.`
        : 'The cache is empty, and the matrix is zero.';
    }
    const again = count <= cached && track.shared ? `Computed again, though its keys are there: “${token.word}”. ` : '';
    const first = track.tokens[0];
    const taken = kept.at(-1)?.count === count && count > resumed ? ` A copy is kept behind token ${count}.` : '';
    return `${again}The key of “${token.word}” reads ${vector(found)}; what is missing from ${vector(token.v)} is written. Now “${first.word}” reads `
      + `${vector(stateAbsorbs.read(matrix, first.k))}.${taken} Numbers kept: ${8 * Math.max(count, cached)} in the cache, 16 in the matrix`
      + `${kept.length ? `, ${16 * kept.length} in ${kept.length === 1 ? 'its copy' : `${kept.length} copies`}` : ''}.`;
  }

  yaie.stepped('state-absorbs', {
    steps: (track) => stateAbsorbs.run(track).map((state) => ({ ...state, place: `${plural(state.count, 'token')}`, say: say(state, track) })),
    draw(stage, state, track) {
      const width = room(stage), narrow = isNarrow(stage);
      const cell = narrow ? (width < 340 ? 11 : 14) : 19, words = narrow ? 34 : 48, list = words + 8 * cell + 8;
      const size = Math.min(46, Math.floor((width - list - (narrow ? 30 : 70)) / 4)), side = narrow ? 12 : 24;
      const x = Math.max(list + side + 10, width - 4 * size - (narrow ? 2 : 40)), y = TOP + side + 4;
      const small = narrow ? Math.min(10, Math.floor((width - list - 40) / 9)) : 14;
      const high = Math.max(TOP + track.tokens.length * ROW, y + 4 * size + 34 + 4 * small + 18);
      const left = x - (narrow ? 0 : 10);
      stage.append(picture(width, high, state.say,
        text(0, 12, 'KV cache', { bold: true }), text(words, 32, 'key'), text(words + 4 * cell + 6, 32, 'value'),
        cache(state, track, { cell, words }),
        text(x - side - 4, 12, 'state', { bold: true }),
        state.token ? [strip(state.token.k, x - side, y, size > side ? side - 4 : size, 'k-now', { down: true }).map((node) => node)] : null,
        state.written ? strip(state.written, x, y - side, Math.min(size, side - 4), 'u-now') : null,
        matrixOf(state, x, y, size),
        text(left, y + 4 * size + 26, state.kept.length ? 'copies' : '', { bold: true }),
        copies(state, track, left, y + 4 * size + 34, small)),
      legend([{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }, 'a number'], [{ fill: 'none', stroke: 'var(--y-orange)', 'stroke-width': 2 }, 'below zero'],
        [{ fill: 'var(--y-green-soft)' }, 'reused'], [{ fill: 'none', stroke: 'var(--y-red)', 'stroke-dasharray': '3 2' }, 'there, and computed again']));
    },
  });
})();
