// Which keys each query sees, if the triangle of the mask is at the end of the keys, and if it is at the top left.
'use strict';

const maskCorner = (() => {
  /** The keys that query `query` of `queries` sees, of `keys`: those up to its own position. */
  const sees = (corner, query, { keys, queries }) => Math.min(keys, (corner === 'end' ? keys - queries : 0) + query + 1);

  return { sees };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const MOST = 8, LEFT = 62, TOP = 34, GAP = 3;
  const many = (number, word) => `${number} ${word}${number === 1 ? '' : 's'}`;

  yaie.controlled('mask-corner', {
    plays: 'queries',
    controls: () => [
      { name: 'queries', label: 'queries in this step', min: 1, max: MOST, step: 1, value: 2, format: (count) => count },
      { name: 'cached', label: 'tokens in the cache', min: 0, max: MOST, step: 1, value: 3, format: (count) => count },
      { name: 'corner', label: 'the triangle is', options: [['end', 'at the end of the keys'], ['tril', 'at the top left (torch.tril)']], value: 'end' },
    ],
    tallest: () => [{ queries: MOST, cached: MOST, corner: 'tril' }],
    draw(stage, { queries, cached, corner }) {
      const keys = cached + queries, width = room(stage), narrow = isNarrow(stage);
      const size = Math.min(30, Math.floor((width - LEFT - 8) / (2 * MOST)));
      const x = (key) => LEFT + key * size, y = (query) => TOP + query * size;
      let hidden = 0, wrong = 0;
      const cells = Array.from({ length: queries }, (_, query) => Array.from({ length: keys }, (_, key) => {
        const seen = key < maskCorner.sees(corner, query, { keys, queries }), right = key < maskCorner.sees('end', query, { keys, queries });
        hidden += seen ? 0 : 1;
        wrong += seen === right ? 0 : 1;
        const look = { x: x(key), y: y(query), width: size - GAP, height: size - GAP, rx: 2, 'data-key': `cell-${query}-${key}` };
        return [
          svg('rect', { ...look, fill: seen ? 'var(--y-blue)' : 'none', stroke: seen === right ? 'var(--y-line)' : 'var(--y-red)',
            'stroke-width': seen === right ? 1 : 2.2 }),
          seen ? null : svg('path', { d: `M${x(key) + 4} ${y(query) + 4}l${size - GAP - 8} ${size - GAP - 8}m0 ${8 + GAP - size}l${8 + GAP - size} ${size - GAP - 8}`,
            stroke: seen === right ? 'var(--y-line)' : 'var(--y-red)', 'stroke-width': 1.2, 'data-key': `cross-${query}-${key}` }),
        ];
      }));
      const said = `${many(queries, 'query').replace('querys', 'queries')}, ${many(keys, 'key')}: ${hidden} of ${queries * keys} entries are hidden. `
        + (wrong ? `${wrong} of them should be seen: the last query, which is to give the next token, sees ${many(maskCorner.sees(corner, queries - 1, { keys, queries }), 'key')} instead of ${keys}.`
          : cached ? 'Each query sees all cached keys and the new ones up to its own.' : 'Nothing is cached, so both ways are the same.');
      stage.append(picture(width, TOP + MOST * size + 6, said,
        text(LEFT, 12, narrow ? 'keys, by position' : 'keys, by position; those before the line are in the cache'),
        Array.from({ length: keys }, (_, key) => (size < 20 && key % 2 ? null : text(x(key) + (size - GAP) / 2, TOP - 6, key, { anchor: 'middle' }))),
        Array.from({ length: queries }, (_, query) => text(LEFT - 8, y(query) + size / 2 + 3, `q at ${cached + query}`, { anchor: 'end' })),
        cells,
        cached ? svg('line', { x1: x(cached) - GAP / 2, x2: x(cached) - GAP / 2, y1: TOP - 2, y2: y(queries), stroke: 'currentColor', 'stroke-width': 1.6, 'data-key': 'cached' }) : null),
      legend([{ fill: 'var(--y-blue)' }, 'seen'], [{ fill: 'none', stroke: 'var(--y-line)' }, 'hidden'], [{ fill: 'none', stroke: 'var(--y-red)', 'stroke-width': 2.2 }, 'hidden by mistake']));
      return said;
    },
  });
})();
