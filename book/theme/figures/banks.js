// One load of a warp from shared memory: which of the 32 banks each lane wants, and how many passes it takes.
//
// Lane i reads `words` words of 4 bytes at the beginning of row i, whose length is row + pad words. Loads of
// 16 bytes are served for 8 lanes at a time, loads of 4 bytes for all 32.
'use strict';

const banks = (() => {
  const BANKS = 32;

  /** Of the lanes that are served together: [lane, bank, pass] for each word, and the number of passes. */
  function serve({ row, pad, words }) {
    const lanes = BANKS / words;
    const next = Array.from({ length: BANKS }, () => 0);
    const wanted = [];
    for (let lane = 0; lane < lanes; lane += 1) {
      for (let word = 0; word < words; word += 1) {
        const bank = (lane * (row + pad) + word) % BANKS;
        wanted.push([lane, bank, next[bank]]);
        next[bank] += 1;
      }
    }
    return { lanes, wanted, passes: Math.max(...next), used: next.filter((count) => count > 0).length };
  }

  return { serve, BANKS };
})();

(() => {
  const { svg } = yaie;
  const { serve, BANKS } = banks;
  const LEFT = 54, TOP = 30, CELL = 17;
  const WIDTH = LEFT + BANKS * CELL + 8;
  const COLOURS = ['blue', 'orange', 'green', 'red'];
  const SMALL = 'font-size: 11px';
  const text = (x, y, words, anchor = 'middle') =>
    svg('text', { x, y, 'text-anchor': anchor, style: SMALL }, words);

  yaie.controlled('banks', {
    controls: () => [
      { name: 'row', label: 'floats in a row', value: '128', options: [
        ['64', '64'], ['80', '80'], ['96', '96'], ['128', '128'], ['256', '256']] },
      { name: 'pad', label: 'floats of padding', min: 0, max: 8, step: 1, value: 0 },
      { name: 'words', label: 'a lane reads', value: '4', options: [
        ['4', '16 bytes (8 lanes at a time)'], ['1', '4 bytes (32 lanes at a time)']] },
    ],
    draw(stage, { row, pad, words }) {
      const request = { row: Number(row), pad, words: Number(words) };
      const { lanes, wanted, passes, used } = serve(request);
      const misaligned = request.words === 4 && (request.row + pad) % 4 !== 0;
      const high = Math.min(CELL, 150 / lanes + 8) * (lanes > 8 ? 0.8 : 1);
      const foot = TOP + lanes * high;
      const said = misaligned
        ? `A row of ${request.row + pad} floats: every other row begins at an address that is no multiple of 16. A load `
          + 'of 16 bytes from there stops the kernel.'
        : `Rows of ${request.row + pad} floats: ${lanes} lanes want words in ${used} of the 32 banks, `
          + `${passes === 1 ? 'each bank one: a single pass.' : `up to ${passes} words of one bank: ${passes} passes, where one could do.`}`;
      stage.dataset.wide = 520;
      stage.append(svg('svg', { viewBox: `0 0 ${WIDTH} ${foot + 22}`, role: 'img', 'aria-label': said },
        text(LEFT, 12, 'bank', 'start'),
        Array.from({ length: 8 }).map((_, i) => text(LEFT + (4 * i + 0.5) * CELL, TOP - 5, 4 * i)),
        Array.from({ length: lanes }).flatMap((_, lane) => [
          lane % (lanes / 8) === 0 ? text(LEFT - 6, TOP + (lane + 0.8) * high, `lane ${lane}`, 'end') : null,
          svg('line', { x1: LEFT, x2: LEFT + BANKS * CELL, y1: TOP + (lane + 1) * high, y2: TOP + (lane + 1) * high,
            stroke: 'var(--y-line)', 'stroke-width': 0.6 }),
        ]),
        wanted.flatMap(([lane, bank, pass]) => {
          const colour = COLOURS[pass % COLOURS.length], x = LEFT + bank * CELL, y = TOP + lane * high;
          return [
            svg('rect', { x: x + 1, y: y + 1, width: CELL - 2, height: high - 2, fill: `var(--y-${colour}-soft)`,
              stroke: `var(--y-${colour})` }),
            high > 11 ? text(x + CELL / 2, y + high / 2 + 4, pass + 1) : null,
          ];
        }),
        text(LEFT, foot + 16, 'the number is the pass in which a word is handed out', 'start')));
      return said;
    },
  });
})();
