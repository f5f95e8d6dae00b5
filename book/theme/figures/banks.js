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
  const { room, isNarrow, picture, text } = yaie.stage;
  const { serve, BANKS } = banks;
  const TOP = 30;
  const COLOURS = ['blue', 'orange', 'green', 'purple'];

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
      const left = isNarrow(stage) ? 24 : 58, high = lanes > 8 ? 13 : 44;
      const cell = Math.min(22, (room(stage) - left - 2) / BANKS), width = left + BANKS * cell + 2;
      const foot = TOP + lanes * high;
      const said = misaligned
        ? `A row of ${request.row + pad} floats: every other row begins at an address that is no multiple of 16. A load `
          + 'of 16 bytes from there stops the kernel.'
        : `Rows of ${request.row + pad} floats: ${lanes} lanes want words in ${used} of the 32 banks, `
          + `${passes === 1 ? 'each bank one: a single pass.' : `up to ${passes} words of one bank: ${passes} passes, where one could do.`}`;
      stage.append(picture(width, foot + 4, said,
        text(0, 12, isNarrow(stage) ? 'lane; bank across' : 'lane, by bank'),
        Array.from({ length: 8 }).map((_, i) => text(left + (4 * i + 0.5) * cell, TOP - 5, 4 * i, { anchor: 'middle' })),
        Array.from({ length: lanes }).flatMap((_, lane) => [
          lane % (lanes / 8) === 0 ? text(left - 6, TOP + lane * high + high / 2 + 5, isNarrow(stage) ? lane : `lane ${lane}`, { anchor: 'end' }) : null,
          svg('line', { x1: left, x2: left + BANKS * cell, y1: TOP + (lane + 1) * high, y2: TOP + (lane + 1) * high,
            stroke: 'var(--y-line)', 'stroke-width': 0.6 }),
        ]),
        wanted.map(([lane, bank, pass], index) => {
          const colour = COLOURS[pass % COLOURS.length], x = left + bank * cell, y = TOP + lane * high;
          return svg('g', { 'data-key': `word-${request.words}-${index}`, 'data-thing': `bank-${bank} lane-${lane}` },
            svg('rect', { x: x + 0.5, y: y + 1, width: cell - 1, height: high - 2, fill: `var(--y-${colour}-soft)`,
              stroke: `var(--y-${colour})` }),
            text(x + cell / 2, y + high / 2 + 4.5, pass + 1, { anchor: 'middle' }));
        })),
      yaie.stage.legend([{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }, 'a word that is asked for; its number is the pass in which it is handed out']));
      return said;
    },
  });
})();
