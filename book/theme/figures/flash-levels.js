// FlashAttention through the memory levels: one head, causal, float32, in the tiles of lab 15. Each step moves or computes
// one tile; the bytes that pass between the levels are counted by flashLevels, which a test compares with the counters of
// the CUDA-on-CPU runtime for the reference's kernel.
'use strict';

const flashLevels = (() => {
  const THREADS = 128, KEYS = 64, DOWN = 8, ACROSS = 16, SIZE = 4;

  /** Bytes that one piece of work moves. rows: queries of a tile; dim: of a head, a multiple of 16. */
  function pieces({ dim, rows }) {
    const tile = (count) => count * dim * SIZE;
    const [own, columns] = [rows / DOWN, KEYS / ACROSS]; // elements of a score tile that a thread has
    return {
      queries: { read: tile(rows), filled: tile(rows) },
      keys: { read: tile(KEYS), filled: tile(KEYS) },
      scores: { used: THREADS * (dim / 4) * (own + columns) * 16 },
      weights: { filled: rows * KEYS * SIZE },
      values: { read: tile(KEYS), filled: tile(KEYS) },
      product: { used: THREADS * (KEYS / 4) * (own * 16 + (dim / ACROSS) * 16) },
      out: { written: tile(rows) + rows * SIZE }, // and a logarithm a query
    };
  }

  /** The walk of all programs: [what, program, key tile] of each piece of work, in order. */
  function walk({ tokens, rows }) {
    const found = [];
    for (let program = 0; program < Math.ceil(tokens / rows); program += 1) {
      found.push(['queries', program]);
      for (let tile = 0; tile * KEYS < Math.min((program + 1) * rows, tokens); tile += 1) {
        for (const what of ['keys', 'scores', 'weights', 'values', 'product']) found.push([what, program, tile]);
      }
      found.push(['out', program]);
    }
    return found;
  }

  const LEVELS = ['read', 'written', 'filled', 'used'];
  const none = () => Object.fromEntries(LEVELS.map((level) => [level, 0]));
  function add(sum, work) { for (const level of LEVELS) sum[level] += work[level] ?? 0; return sum; }

  /** Bytes of the whole launch: read from and written to memory, filled into and used from shared memory. */
  function count(shape) {
    const each = pieces(shape);
    return walk(shape).reduce((sum, [what]) => add(sum, each[what]), none());
  }

  /** The obvious program: scores, mask, softmax and product as four kernels, each of which reads and writes whole tensors. */
  function obvious({ tokens, dim }) {
    const tensor = tokens * dim * SIZE, scores = tokens * tokens * SIZE;
    return { read: 3 * tensor + 3 * scores, written: tensor + 3 * scores, scores: 6 * scores };
  }

  return { KEYS, pieces, walk, none, add, count, obvious };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text } = yaie.stage;
  const { KEYS, pieces, walk, none, add, count, obvious } = flashLevels;
  const COLOURS = { Q: 'blue', K: 'orange', V: 'green', O: 'purple' };
  const size = (bytes) => (bytes < 1e6 ? `${(bytes / 1024).toFixed(0)} KiB` : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`);

  const SAID = {
    queries: (i) => `Program ${i} loads its tile of queries. It is read once.`,
    keys: (i, j) => `Keys of tile ${j} come into shared memory: all queries of the tile will use them there.`,
    scores: (i, j, last) => `Scores, in registers: each thread reads rows of both tiles from shared memory.${last ? ' On the diagonal a mask hides the keys to come.' : ''}`,
    weights: (i, j) => `${j ? 'The maximum may have grown: m, l and acc are scaled. ' : ''}The weights go to shared memory, for other threads to read. No score has gone to memory.`,
    values: (i, j) => `Values of tile ${j} take the place of the keys.`,
    product: () => 'Weights times values are added to acc, in registers.',
    out: (i) => `acc / l is written, once, with a logarithm for each query. Program ${i} is done.`,
  };

  /** All steps of a walk, each with the sums so far and what lies where. */
  function steps(data) {
    const shape = { ...data.shape, rows: data.rows };
    const each = pieces(shape), total = none(), big = { tokens: 8192, dim: 128, rows: data.rows };
    const tiles = Math.ceil(shape.tokens / shape.rows);
    const state = { shared: {}, registers: {}, done: [] };
    const found = walk(shape).map(([what, program, tile]) => {
      const last = tile !== undefined && (tile + 1) * KEYS > program * shape.rows;
      add(total, each[what]);
      if (what === 'queries') [state.shared, state.registers] = [{ Q: program }, {}];
      if (what === 'keys') state.shared = { Q: program, K: tile };
      if (what === 'scores') state.registers = { ...state.registers, S: tile };
      if (what === 'weights') [state.shared, state.registers] = [{ ...state.shared, P: tile }, { acc: state.registers.acc ?? program, ml: program }];
      if (what === 'values') state.shared = { Q: program, P: tile, V: tile };
      if (what === 'product') [state.shared, state.registers] = [{ Q: program, V: tile }, { acc: program, ml: program, fed: true }];
      if (what === 'out') [state.shared, state.registers, state.done] = [{}, {}, [...state.done, program]];
      return { say: SAID[what](program, tile, last), what, program, tile, tiles, total: { ...total },
        shared: { ...state.shared }, registers: { ...state.registers }, done: [...state.done] };
    });
    const [here, far] = [obvious(shape), count(big)];
    found.at(-1).say += ` Memory: ${size(total.read + total.written)}; with the scores in memory ${size(here.read + here.written)}. `
      + `A head of 8,192 tokens and ${big.dim} numbers: ${size(far.read + far.written)} and ${size(obvious(big).read + obvious(big).written)}.`;
    return found;
  }

  function tile(name, index, x, y, wide, high, extra = {}) {
    const colour = COLOURS[name];
    return svg('g', { 'data-key': extra.key, 'data-thing': `${name}-${index}` },
      svg('rect', { x, y, width: wide, height: high, rx: 3, fill: `var(--y-${colour}-soft)`, stroke: `var(--y-${colour})`, ...extra.look }),
      text(x + wide / 2, y + high / 2 + 4.5, `${name}${index}`, { anchor: 'middle', bold: true }));
  }

  /** A level: its frame, its name, what passed into and out of it. */
  function level(y, width, high, name, told) {
    return [
      svg('rect', { x: 1, y, width: width - 2, height: high, rx: 6, fill: 'none', stroke: 'var(--y-line)' }),
      text(10, y + 17, name, { bold: true, size: 13 }),
      ...told.map((words, at) => text(10, y + 35 + at * 16, words, { 'data-key': `told-${name}-${at}` })),
    ];
  }

  yaie.stepped('flash-levels', {
    steps, alike: true,
    draw(stage, step, data) {
      const width = room(stage), narrow = isNarrow(stage);
      const left = narrow ? 10 : 190, inner = width - left - 12;
      const keyTiles = data.shape.tokens / KEYS, down = narrow ? 46 : 0, under = narrow ? 26 : 0;
      const gap = 6, pitch = Math.min(66, Math.floor(inner / keyTiles));
      const [wide, high] = [pitch - gap, 24];
      const heights = [4 * 29 + 12 + down, 58 + under, 58 + under];
      const tops = [1, heights[0] + 13, heights[0] + heights[1] + 25];
      const { total, shared, registers } = step;
      const rowOf = { Q: 0, K: 1, V: 2, O: 3 };
      const inMemory = (name, index, count) => {
        const span = inner / count; // larger tiles of queries are wider
        return [left + index * Math.min(span, pitch * keyTiles / count), tops[0] + down + 10 + rowOf[name] * 29, Math.min(span, pitch * keyTiles / count) - gap, high];
      };
      const count_ = { Q: step.tiles, K: keyTiles, V: keyTiles, O: step.tiles };
      const memory = Object.keys(rowOf).flatMap((name) => Array.from({ length: count_[name] }, (_, index) => {
        const isThere = name !== 'O' || step.done.includes(index);
        const [x, y, w, h] = inMemory(name, index, count_[name]);
        const out = svg('rect', { x, y, width: w, height: h, rx: 3, fill: 'none', stroke: 'var(--y-line)', 'stroke-dasharray': '3 3' });
        if (isThere) return tile(name, index, x, y, w, h, { key: name === 'O' ? `acc-${index}` : null });
        return out;
      }));
      // A copy lies on its tile in memory until it is loaded: so it is seen to come from there.
      const copies = Object.keys(rowOf).slice(0, 3).flatMap((name) => Array.from({ length: count_[name] }, (_, index) => {
        if (shared[name] === index) return null;
        const [x, y, w, h] = inMemory(name, index, count_[name]);
        return tile(name, index, x, y, w, h, { key: `${name}-${index}` });
      })).filter(Boolean);
      const slot = (at, of) => left + at * (inner / of);
      const w3 = Math.min(130, inner / 3 - gap);
      const second = [
        'Q' in shared ? tile('Q', shared.Q, slot(0, 3), tops[1] + under + 17, w3, high, { key: `Q-${shared.Q}` }) : null,
        'K' in shared ? tile('K', shared.K, slot(1, 3), tops[1] + under + 17, w3, high, { key: `K-${shared.K}` }) : null,
        'V' in shared ? tile('V', shared.V, slot(1, 3), tops[1] + under + 17, w3, high, { key: `V-${shared.V}` }) : null,
        'P' in shared ? score('weights', slot(2, 3), tops[1] + under + 17, w3, step) : null,
      ];
      const third = [
        'S' in registers ? score('scores', slot(0, 3), tops[2] + under + 17, w3, step) : null,
        'acc' in registers ? svg('g', { 'data-key': `acc-${step.program}`, 'data-thing': `O-${step.program}` },
          svg('rect', { x: slot(1, 3), y: tops[2] + under + 17, width: w3, height: high, rx: 3, fill: 'var(--y-red-soft)', stroke: 'var(--y-red)',
            'stroke-dasharray': registers.fed ? null : '3 2' }),
          text(slot(1, 3) + w3 / 2, tops[2] + under + 33, `acc${step.program}`, { anchor: 'middle', bold: true })) : null,
        'ml' in registers ? text(slot(2, 3), tops[2] + under + 33, 'm, l', { bold: true, 'data-key': `ml-${step.program}` }) : null,
      ];
      const said = `Shared memory: ${Object.entries(shared).map(([name, index]) => `${name}${index}`).join(', ') || 'empty'}. ${step.say}`;
      stage.append(picture(width, tops[2] + heights[2] + 3, said,
        ...level(tops[0], width, heights[0], 'memory (HBM)', [`read ${size(total.read)}`, `written ${size(total.written)}`]),
        ...level(tops[1], width, heights[1], 'shared memory', narrow ? [`filled ${size(total.filled)}, used ${size(total.used)}`] : [`filled ${size(total.filled)}`, `used ${size(total.used)}`].slice(0, 2)),
        ...level(tops[2], width, heights[2], 'registers', [narrow ? 'scores never leave the chip' : 'scores never leave', ...(narrow ? [] : ['the chip'])]),
        ...memory, ...copies, ...second, ...third,
        ...(narrow ? [] : compared(left + keyTiles * pitch + 20, tops[0] + 22, width - left - keyTiles * pitch - 40, total, obvious(data.shape)))));
    },
  });

  /** What has passed between memory and the chip so far, beside what the obvious program moves in all. */
  function compared(x, y, width, total, all) {
    const most = all.read + all.written, now = total.read + total.written;
    const bar = (at, part, words, colour, key) => [
      text(x, y + at, words),
      svg('rect', { x, y: y + at + 6, width: Math.max(1, part * width), height: 14, rx: 2, fill: `var(--y-${colour}-soft)`, stroke: `var(--y-${colour})`,
        'stroke-dasharray': colour === 'red' ? '4 2' : null, 'data-key': key }),
    ];
    return [...bar(0, now / most, `so far ${size(now)}`, 'blue', 'bar-now'), ...bar(46, 1, `scores in memory ${size(most)}`, 'red', 'bar-all')];
  }

  function score(words, x, y, wide, step) {
    return svg('g', { 'data-key': `score-${step.program}-${step.tile}`, 'data-thing': 'scores' },
      svg('rect', { x, y, width: wide, height: 24, rx: 3, fill: 'var(--y-grey-soft)', stroke: 'var(--y-grey)' }),
      text(x + wide / 2, y + 16.5, words, { anchor: 'middle' }));
  }
})();
