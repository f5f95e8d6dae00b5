// Programs of a decode on the places of a machine: who runs where and when, split or not. A simulation.
'use strict';

const splitKv = (() => {
  const TILE = 64, START = 48, JOIN = 96;
  const LENGTHS = {
    even: [1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024],
    long: [4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096],
    uneven: [384, 1536, 128, 960, 192, 2048, 512, 256, 1280, 640, 64, 1792, 896, 320, 1152, 768],
  };

  /** [sequence, keys] of each program: whole tiles, the parts of a sequence alike, empty ones left out. */
  function programs(lengths, splits) {
    return lengths.flatMap((keys, sequence) => {
      const size = Math.ceil(Math.ceil(keys / TILE) / splits) * TILE;
      return Array.from({ length: Math.ceil(keys / size) }, (_, part) => [sequence, Math.min(size, keys - part * size)]);
    });
  }

  /** Bars [place, begin, end, sequence]; when all is done, and which share of the places was used till then. */
  function simulate({ lengths, splits, places }) {
    const free = Array.from({ length: places }, () => 0);
    const bars = programs(lengths, splits).map(([sequence, keys]) => {
      const place = free.indexOf(Math.min(...free));
      const begin = free[place];
      free[place] += START + keys;
      return [place, begin, free[place], sequence];
    });
    const read = Math.max(...free);
    const work = bars.reduce((sum, [, begin, end]) => sum + end - begin, 0);
    return { bars, read, end: read + (splits > 1 ? JOIN : 0), busy: work / (places * read) };
  }

  return { LENGTHS, programs, simulate };
})();

(() => {
  const { svg } = yaie;
  const WIDTH = 600, LEFT = 58, ROW = 18, TOP = 6, PLACES = 8;
  const SMALL = 'font-size: 11px';
  const COLOURS = ['blue', 'orange', 'green', 'red'];
  const text = (x, y, words, anchor = 'start') => svg('text', { x, y, 'text-anchor': anchor, style: SMALL }, words);

  function bar([place, begin, end, sequence], x) {
    const colour = COLOURS[sequence % COLOURS.length], y = TOP + place * ROW, wide = x(end) - x(begin);
    return [
      svg('rect', { x: x(begin), y, width: Math.max(wide - 1, 0.8), height: ROW - 3, fill: `var(--y-${colour}-soft)`,
        stroke: `var(--y-${colour})` }),
      wide > 16 ? text((x(begin) + x(end)) / 2, y + 12, sequence + 1, 'middle') : null,
    ];
  }

  yaie.controlled('split-kv', {
    controls: () => [
      { name: 'count', label: 'sequences', min: 1, max: 16, step: 1, value: 9 },
      { name: 'splits', label: 'parts of each', min: 1, max: 16, step: 1, value: 1 },
      { name: 'keys', label: 'keys', options: [['even', '1,024 each'], ['long', '4,096 each'], ['uneven', '64 to 2,048']],
        value: 'even' },
    ],
    draw(stage, { count, splits, keys }) {
      const lengths = splitKv.LENGTHS[keys].slice(0, count);
      const run = splitKv.simulate({ lengths, splits, places: PLACES });
      const whole = splitKv.simulate({ lengths, splits: 1, places: PLACES });
      const scale = Math.max(whole.end, run.end); // the same for all splits, to be compared
      const x = (time) => LEFT + time * (WIDTH - LEFT - 10) / scale;
      const foot = TOP + PLACES * ROW + 14;
      const saved = Math.round(100 * run.end / whole.end);
      const said = `${run.bars.length} ${run.bars.length === 1 ? 'program' : 'programs'} on ${PLACES} SM slots, which are `
        + `busy ${Math.round(100 * run.busy)}% of the time that reading takes. Done after ${run.end.toLocaleString('en')} keys' time`
        + `${splits > 1 ? `, joining included: ${saved}% of what it takes without splits.` : '.'}`;
      const joined = splits > 1 ? [
        svg('rect', { x: x(run.read), y: TOP, width: x(run.end) - x(run.read), height: PLACES * ROW - 3,
          fill: 'var(--y-grey-soft)', stroke: 'var(--y-grey)', 'stroke-dasharray': '3 2' }),
        text((x(run.read) + x(run.end)) / 2, foot + 14, 'join', 'middle'),
      ] : [];
      stage.dataset.wide = 460;
      stage.append(svg('svg', { viewBox: `0 0 ${WIDTH} ${foot + 20}`, role: 'img', 'aria-label': said },
        Array.from({ length: PLACES }).flatMap((_, place) => [
          text(LEFT - 8, TOP + place * ROW + 12, `slot ${place + 1}`, 'end'),
          svg('line', { x1: LEFT, x2: WIDTH - 10, y1: TOP + place * ROW + ROW - 2, y2: TOP + place * ROW + ROW - 2,
            stroke: 'var(--y-line)' }),
        ]),
        run.bars.flatMap((program) => bar(program, x)), joined,
        text(LEFT, foot, '0'), text(WIDTH - 10, foot, `${scale.toLocaleString('en')} keys' time`, 'end')));
      return said;
    },
  });
})();
