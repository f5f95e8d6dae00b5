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
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const bytes = (value) => (value < 1e9 ? `${(value / 1e6).toFixed(0)} MB` : `${(value / 1e9).toFixed(1)} GB`);
  const time = (seconds) => (seconds < 1e-3 ? `${(seconds * 1e6).toFixed(0)} µs` : `${(seconds * 1e3).toFixed(1)} ms`);
  const LOOKS = Object.fromEntries(['blue', 'red', 'orange', 'green'].map((colour) => [colour, {
    fill: `var(--y-${colour}-soft)`, stroke: `var(--y-${colour})`, 'stroke-dasharray': /red|orange/.test(colour) ? '4 2' : null }]));

  yaie.controlled('flash-traffic', {
    plays: 'length',
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
      const width = room(stage), left = isNarrow(stage) ? 2 : 136, row = isNarrow(stage) ? 62 : 48;
      const x = (value) => value / most * (width - left - 4);
      const bars = [
        ['scores in memory', 'plain', [[found.whole, 'blue'], [found.scores, 'red']], `${bytes(plain)}, ${time(found.seconds(plain))}`],
        ['in tiles', 'tiles', [[found.once, 'blue'], [found.again, 'orange']], `${bytes(tiled)}, ${time(found.seconds(tiled))}`],
        ['arithmetic', 'arithmetic', [[found.arithmetic * 4.27e12, 'green']], time(found.arithmetic)],
      ];
      const said = `${length.toLocaleString('en')} tokens: ${bytes(plain)} with the scores in memory, ${bytes(tiled)} in tiles of `
        + `${rows} ${rows === 1 ? 'query' : 'queries'}; the arithmetic takes ${time(found.arithmetic)}, `
        + `the bytes ${time(found.seconds(plain))} or ${time(found.seconds(tiled))}.`;
      stage.append(picture(width, 3 * row + 4, said,
        bars.flatMap(([name, thing, parts, told], index) => {
          let at = left;
          const y = index * row + (isNarrow(stage) ? 18 : 6);
          const drawn = parts.map(([value, colour]) => {
            const rect = svg('rect', { x: at, y, width: Math.max(x(value), 1), height: 20, ...LOOKS[colour],
              'data-key': `${thing}-${colour}`, 'data-thing': colour === 'blue' ? `${thing} once` : thing });
            at += x(value);
            return rect;
          });
          const named = isNarrow(stage) ? text(left, y - 5, name, { 'data-thing': thing })
            : text(left - 8, y + 15, name, { anchor: 'end', 'data-thing': thing });
          return [named, ...drawn, text(left, y + 35, told, { 'data-key': `told-${thing}`, 'data-thing': thing })];
        })),
      legend([LOOKS.blue, 'q, k, v, out once'], [LOOKS.red, 'scores'], [LOOKS.orange, 'k and v again, for every tile of queries'], [LOOKS.green, 'arithmetic, as time']));
      return said;
    },
  });
})();
