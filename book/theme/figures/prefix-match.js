// How a thread block counts the common prefix of two rows: votes of small warps, the first difference of each,
// and which counts are added up. Four warps of 8 lanes here; 64 entries are two turns.
'use strict';

const prefixMatch = (() => {
  const LANES = 8, WARPS = 4, TURN = LANES * WARPS;

  /** The turns until one has a difference: for each warp its entries that differ, its count, and if it counts. */
  function run(length, differences) {
    const turns = [];
    let common = 0;
    while (common < length) {
      let open = true;
      const warps = Array.from({ length: WARPS }, (_, warp) => {
        const differs = Array.from({ length: LANES }, (_, lane) => {
          const place = common + warp * LANES + lane;
          return place >= length || differences.includes(place);
        });
        const first = differs.indexOf(true);
        const count = first < 0 ? LANES : first;
        const counts = open;
        open = open && first < 0;
        return { differs, count, counts };
      });
      const same = warps.reduce((sum, warp) => sum + (warp.counts ? warp.count : 0), 0);
      turns.push({ begin: common, warps, same });
      common += same;
      if (same < TURN) break;
    }
    return { turns, common };
  }

  return { run, LANES, WARPS, TURN };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text } = yaie.stage;
  const { run, LANES, WARPS } = prefixMatch;

  /** Four warps in a row, or two and two on a phone. */
  function places(stage) {
    const across = isNarrow(stage) ? 2 : WARPS, gap = 14, high = 62, top = 18;
    const cell = Math.min(21, (room(stage) - 4) / across / LANES - gap / LANES);
    return {
      cell, turn: high * WARPS / across + 12, top, width: across * (LANES * cell + gap) + 2,
      at: (warp) => [2 + (warp % across) * (LANES * cell + gap), Math.floor(warp / across) * high],
    };
  }

  function one(warp, number, begin, turn, length, place) {
    const [left, below] = place.at(number), y = place.top + turn * place.turn + below;
    const mine = { 'data-thing': `warp-${number}` };
    return [
      text(left, y - 5, `warp ${number}, from ${begin + number * LANES}`, mine),
      warp.differs.flatMap((differs, lane) => {
        const x = left + lane * place.cell, entry = begin + number * LANES + lane, exists = entry < length;
        const colour = !exists ? 'grey' : differs ? 'red' : 'blue';
        return [
          svg('rect', { x, y, width: place.cell - 2, height: 18, fill: `var(--y-${colour}-soft)`, stroke: `var(--y-${colour})`,
            'data-key': `entry-${entry}`, ...mine }),
          text(x + place.cell / 2 - 1, y + 13, exists ? (differs ? '≠' : '=') : '·', { anchor: 'middle' }),
        ];
      }),
      text(left + LANES * place.cell / 2, y + 34, warp.counts ? `${warp.count}` : `${warp.count}, ignored`,
        { anchor: 'middle', bold: warp.counts, 'data-key': `count-${turn}-${number}-${warp.count}`, 'data-thing': `warp-${number} ${warp.counts ? 'counts' : 'ignored'}` }),
    ];
  }

  yaie.controlled('prefix-match', {
    controls: () => [
      { name: 'first', label: 'one entry that differs', min: 0, max: 63, step: 1, value: 19 },
      { name: 'second', label: 'another one', min: 0, max: 63, step: 1, value: 26 },
      { name: 'length', label: 'real entries of the row', min: 1, max: 64, step: 1, value: 64 },
    ],
    draw(stage, { first, second, length }) {
      const { turns, common } = run(length, [first, second]);
      const sums = turns.map(({ warps }) => warps.filter((w) => w.counts).map((w) => w.count).join(' + '));
      const said = `${turns.length === 1 ? 'One turn' : `${turns.length} turns`}: ${sums.join('; ')}. The common prefix has `
        + `${common} ${common === 1 ? 'entry' : 'entries'}.`;
      const place = places(stage);
      stage.append(picture(place.width, turns.length * place.turn + 4, said,
        turns.flatMap(({ begin, warps }, turn) =>
          warps.flatMap((warp, number) => one(warp, number, begin, turn, length, place).flat()))));
      return said;
    },
  });
})();
