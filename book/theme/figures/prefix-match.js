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
  const { run, LANES, WARPS } = prefixMatch;
  const LEFT = 8, TOP = 20, CELL = 16, GAP = 14, HIGH = 76;
  const WARP = LANES * CELL + GAP;
  const WIDTH = LEFT + WARPS * WARP;
  const SMALL = 'font-size: 11px';
  const text = (x, y, words, anchor = 'middle') =>
    svg('text', { x, y, 'text-anchor': anchor, style: SMALL }, words);

  function one(warp, number, begin, y, length) {
    const left = LEFT + number * WARP;
    return [
      text(left, y - 5, `warp ${number}, from ${begin + number * LANES}`, 'start'),
      warp.differs.flatMap((differs, lane) => {
        const x = left + lane * CELL, exists = begin + number * LANES + lane < length;
        const colour = !exists ? 'grey' : differs ? 'red' : 'blue';
        return [
          svg('rect', { x, y, width: CELL - 2, height: CELL, fill: `var(--y-${colour}-soft)`, stroke: `var(--y-${colour})` }),
          text(x + CELL / 2 - 1, y + 12, exists ? (differs ? '≠' : '=') : '·'),
        ];
      }),
      text(left + LANES * CELL / 2, y + 34, warp.counts ? `${warp.count}` : `${warp.count}, ignored`),
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
      stage.dataset.wide = 540;
      stage.append(svg('svg', { viewBox: `0 0 ${WIDTH} ${TOP + turns.length * HIGH - 20}`, role: 'img', 'aria-label': said },
        turns.flatMap(({ begin, warps }, turn) =>
          warps.flatMap((warp, number) => one(warp, number, begin, TOP + turn * HIGH, length).flat()))));
      return said;
    },
  });
})();
