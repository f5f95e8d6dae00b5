// Which keys a query sees: the triangle at the bottom right, and beside it the one at the top left that torch.tril makes.
'use strict';

const causalMask = (() => {
  /** Whether query `row` of the `tokens` that are computed sees key `column` of `keys`. corner: aligned at the top left. */
  function sees({ keys, tokens, window = 0, corner = false }, row, column) {
    const position = (corner ? 0 : keys - tokens) + row;
    return column <= position && (!window || column > position - window);
  }

  /** The whole mask, a row for each query. */
  const mask = (set) => Array.from({ length: set.tokens }, (_, row) =>
    Array.from({ length: set.keys }, (_, column) => sees(set, row, column)));

  return { sees, mask };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const [MOST, HEAD, FOOT] = [8, 44, 8];
  const count = (row) => row.filter(Boolean).length;
  const listed = (items) => (items.length > 1 ? `${items.slice(0, -1).join(', ')} and ${items.at(-1)}` : `${items[0]}`);
  const keysOf = (number) => `${number} key${number === 1 ? '' : 's'}`;

  const LOOKS = {
    seen: { fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', 'stroke-width': 1.5 },
    hidden: { fill: 'none', stroke: 'var(--y-line)' },
    cached: { fill: 'none', stroke: 'var(--y-line)', 'stroke-dasharray': '1 4' },
    lost: { fill: 'var(--y-red-soft)', stroke: 'var(--y-red)', 'stroke-width': 1.5, 'stroke-dasharray': '3 2' },
  };

  /** A mask as cells, below the rows of cached tokens, which no query computes. `wanted`: what should be seen. */
  function grid(name, title, x, cell, shown, wanted, { keys, tokens }) {
    const size = Math.min(13, cell - 3), cached = keys - tokens;
    return [
      text(x, 14, title, { bold: true, 'data-key': `title-${name}` }),
      Array.from({ length: keys }, (_, column) => text(x + (column + 0.5) * cell, HEAD - 6, column, { anchor: 'middle', 'data-key': `head-${name}-${column}` })),
      Array.from({ length: keys }, (_, position) => text(x - 6, HEAD + (position + 0.5) * cell + 4.5, position,
        { anchor: 'end', 'data-key': `row-${name}-${position}`, opacity: position < cached ? 0.75 : null })),
      Array.from({ length: cached }, (_, position) => svg('rect', { x: x + 1, y: HEAD + position * cell + 1, width: keys * cell - 2,
        height: cell - 2, 'data-key': `cached-${name}-${position}`, 'data-thing': 'cached', ...LOOKS.cached })),
      shown.flatMap((row, at) => [
        ...row.map((isSeen, column) => {
          const kind = isSeen ? 'seen' : wanted[at][column] ? 'lost' : 'hidden';
          const [left, top] = [x + column * cell + 1, HEAD + (cached + at) * cell + 1], arm = size / 4;
          const [middle, centre] = [left + cell / 2 - 1, top + cell / 2 - 1];
          return svg('g', { 'data-key': `${name}-${cached + at}-${column}`, 'data-thing': kind },
            svg('rect', { x: left, y: top, width: cell - 2, height: cell - 2, ...LOOKS[kind] }),
            isSeen ? null : svg('path', { d: `M${middle - arm} ${centre - arm}l${2 * arm} ${2 * arm}m0 ${-2 * arm}l${-2 * arm} ${2 * arm}`, stroke: 'currentColor' }));
        })]),
    ];
  }

  function say({ keys, tokens, window }, right, corner) {
    const positions = Array.from({ length: tokens }, (_, at) => keys - tokens + at);
    const [most, wrong] = [count(right.at(-1)), count(corner.at(-1))];
    const what = tokens === keys ? (tokens === 1 ? 'A prompt of one token' : `A prompt of ${tokens} tokens, all computed in one pass`)
      : tokens === 1 ? `A decode step: one query, at position ${keys - 1}` : `${tokens} new tokens after ${keys - tokens} in the cache, at positions ${listed(positions)}`;
    const sees = `${tokens === 1 ? 'It' : 'The last query'} sees ${most === keys ? (keys === 1 ? 'its key' : `all ${keysOf(keys)}`) : `the last ${keysOf(most)}`}.`;
    const differs = right.some((row, at) => row.some((isSeen, column) => isSeen !== corner[at][column]));
    const last = corner.at(-1).flatMap((isSeen, column) => (isSeen ? [column] : []));
    const beside = !differs ? 'Aligned at the top left, the mask is the same.'
      : `Aligned at the top left, it sees ${wrong === 1 ? `key ${last[0]} alone` : `keys ${listed(last)}`}, without an error.`;
    return `${what}. ${sees}${window ? ` The window is ${window} keys long.` : ''} ${beside}`;
  }

  yaie.controlled('causal-mask', {
    plays: 'tokens',
    tallest: () => [{ tokens: MOST, keys: MOST }, { tokens: MOST, keys: MOST, window: '3' }, { tokens: MOST - 1, keys: MOST, window: '3' },
      { tokens: MOST - 1, keys: MOST }, { tokens: 1, keys: MOST, window: '3' }, { tokens: 5, keys: MOST, window: '3' }],
    controls: () => [
      { name: 'tokens', label: 'tokens computed', min: 1, max: MOST, step: 1, value: 1 },
      { name: 'keys', label: 'keys', min: 1, max: MOST, step: 1, value: 6 },
      { name: 'beside', label: 'beside it', options: [['tril', 'torch.tril'], ['none', 'nothing']], value: 'tril' },
      { name: 'window', label: 'window', options: [['0', 'none'], ['3', '3 keys']], value: '0' },
    ],
    draw(stage, values) {
      const { keys } = values, set = { keys, tokens: Math.min(values.tokens, keys), window: Number(values.window) };
      const [right, corner] = [false, true].map((isCorner) => causalMask.mask({ ...set, corner: isCorner }));
      const width = room(stage), narrow = isNarrow(stage), half = Math.floor(width / 2), left = 26;
      const cell = Math.min(34, Math.floor((half - left - 8) / MOST));
      const said = say(set, right, corner), isBeside = values.beside === 'tril';
      stage.append(picture(width, HEAD + MOST * cell + FOOT, `Rows are queries by position, columns are keys. ${said}`,
        grid('right', narrow ? 'at the end' : 'aligned at the bottom right', left, cell, right, right, set),
        isBeside ? grid('corner', narrow ? 'torch.tril' : 'aligned at the top left (torch.tril)', half + left, cell, corner, right, set) : null),
      legend([LOOKS.seen, 'seen'], [LOOKS.hidden, 'hidden'], [LOOKS.cached, 'in the cache, not computed'], ...(isBeside ? [[LOOKS.lost, 'hidden by mistake']] : [])));
      return said;
    },
  });
})();
