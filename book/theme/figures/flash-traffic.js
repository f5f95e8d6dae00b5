// Bytes and operations of causal attention: scores in memory, or in tiles of queries.
'use strict';

const flashTraffic = (() => {
  const HEADS = 32, DIM = 128, SIZE = 2, BYTES = 4.27e12, FLOPS = 680e12;

  /** Bytes of each kind, and seconds, for `length` tokens; rows: of a tile of queries. */
  function count(length, rows) {
    const tensor = HEADS * length * DIM * SIZE;
    const tiles = Math.ceil(length / rows);
    // Tile i sees the keys before its end: the mean of all tiles, keys and values.
    const seen = (tiles + 1) / (2 * tiles) * 2 * tensor * tiles;
    return {
      scores: 6 * HEADS * length * length * SIZE,
      whole: 4 * tensor,
      once: 2 * tensor,
      again: seen,
      arithmetic: 2 * HEADS * length * length * DIM / FLOPS,
      seconds: (bytes) => bytes / BYTES,
    };
  }
  return { count };
})();

(() => {
  const { svg } = yaie;
  const WIDTH = 600, LEFT = 132, ROW = 44, TOP = 8;
  const SMALL = 'font-size: 11px';
  const text = (x, y, words, anchor = 'start') => svg('text', { x, y, 'text-anchor': anchor, style: SMALL }, words);
  const bytes = (value) => (value < 1e9 ? `${(value / 1e6).toFixed(0)} MB` : `${(value / 1e9).toFixed(1)} GB`);
  const time = (seconds) => (seconds < 1e-3 ? `${(seconds * 1e6).toFixed(0)} µs` : `${(seconds * 1e3).toFixed(1)} ms`);

  yaie.controlled('flash-traffic', {
    controls: () => [
      { name: 'length', label: 'tokens', options: [512, 1024, 2048, 4096, 8192, 16384, 32768].map((n) => [n, n.toLocaleString('en')]),
        value: 8192 },
      { name: 'rows', label: 'queries in a tile', options: [1, 16, 32, 64, 128, 256].map((n) => [n, n]), value: 64 },
    ],
    draw(stage, values) {
      const length = Number(values.length), rows = Number(values.rows);
      const found = flashTraffic.count(length, rows);
      const plain = found.scores + found.whole, tiled = found.once + found.again;
      const most = Math.max(plain, tiled, found.arithmetic * 4.27e12);
      const x = (value) => value / most * (WIDTH - LEFT - 8);
      const bars = [
        ['scores in memory', [[found.whole, 'blue'], [found.scores, 'red']], `${bytes(plain)}, ${time(found.seconds(plain))}`],
        ['in tiles', [[found.once, 'blue'], [found.again, 'orange']], `${bytes(tiled)}, ${time(found.seconds(tiled))}`],
        ['arithmetic', [[found.arithmetic * 4.27e12, 'green']], time(found.arithmetic)],
      ];
      const said = `${length.toLocaleString('en')} tokens: ${bytes(plain)} with the scores in memory, ${bytes(tiled)} in tiles of `
        + `${rows} ${rows === 1 ? 'query' : 'queries'}; the arithmetic takes ${time(found.arithmetic)}, `
        + `the bytes ${time(found.seconds(plain))} or ${time(found.seconds(tiled))}.`;
      stage.dataset.wide = 420;
      stage.append(svg('svg', { viewBox: `0 0 ${WIDTH} ${TOP + 3 * ROW + 22}`, role: 'img', 'aria-label': said },
        bars.flatMap(([name, parts, told], row) => {
          let at = LEFT;
          const y = TOP + row * ROW;
          const drawn = parts.map(([value, colour]) => {
            const rect = svg('rect', { x: at, y, width: Math.max(x(value), 1), height: 18, fill: `var(--y-${colour}-soft)`,
              stroke: `var(--y-${colour})`, 'stroke-dasharray': colour === 'red' || colour === 'orange' ? '4 2' : null });
            at += x(value);
            return rect;
          });
          return [text(LEFT - 8, y + 13, name, 'end'), ...drawn, text(LEFT, y + 32, told)];
        }),
        text(LEFT, TOP + 3 * ROW + 12, 'solid: q, k, v, out once; dashed: scores, or k and v again')));
      return said;
    },
  });
})();
