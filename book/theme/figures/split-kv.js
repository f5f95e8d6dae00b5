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
  const { room, isNarrow, picture, text } = yaie.stage;
  const ROW = 24, TOP = 6, PLACES = 8;
  const COLOURS = ['blue', 'orange', 'green', 'purple'];

  function bar([place, begin, end, sequence], part, x) {
    const colour = COLOURS[sequence % COLOURS.length], y = TOP + place * ROW, wide = x(end) - x(begin);
    const mine = { 'data-thing': `sequence-${sequence + 1}` };
    return [
      svg('rect', { x: x(begin), y, width: Math.max(wide - 1, 0.8), height: ROW - 4, fill: `var(--y-${colour}-soft)`,
        stroke: `var(--y-${colour})`, 'data-key': `part-${sequence}-${part}`, ...mine }),
      wide > 18 ? text((x(begin) + x(end)) / 2, y + 15, sequence + 1, { anchor: 'middle', 'data-key': `number-${sequence}-${part}`, ...mine }) : null,
    ];
  }

  yaie.controlled('split-kv', {
    plays: 'splits',
    controls: () => [
      { name: 'splits', label: 'parts of each', min: 1, max: 16, step: 1, value: 1 },
      { name: 'count', label: 'sequences', min: 1, max: 16, step: 1, value: 9 },
      { name: 'keys', label: 'keys', options: [['even', '1,024 each'], ['long', '4,096 each'], ['uneven', '64 to 2,048']],
        value: 'even' },
    ],
    draw(stage, { count, splits, keys }) {
      const lengths = splitKv.LENGTHS[keys].slice(0, count);
      const run = splitKv.simulate({ lengths, splits, places: PLACES });
      const whole = splitKv.simulate({ lengths, splits: 1, places: PLACES });
      const scale = Math.max(whole.end, run.end); // the same for all splits, to be compared
      const left = isNarrow(stage) ? 20 : 66, width = room(stage), right = width - 4;
      const x = (time) => left + time * (right - left) / scale;
      const foot = TOP + PLACES * ROW + 12;
      const saved = Math.round(100 * run.end / whole.end);
      const said = `${run.bars.length} ${run.bars.length === 1 ? 'program' : 'programs'} on ${PLACES} SM slots, which are `
        + `busy ${Math.round(100 * run.busy)}% of the time that reading takes. Done after ${run.end.toLocaleString('en')} keys' time`
        + `${splits > 1 ? `, joining included: ${saved}% of what it takes without splits.` : '.'}`;
      const joined = splits > 1 ? [
        svg('rect', { x: x(run.read), y: TOP, width: x(run.end) - x(run.read), height: PLACES * ROW - 3,
          fill: 'var(--y-grey-soft)', stroke: 'var(--y-grey)', 'stroke-dasharray': '3 2', 'data-key': 'join', 'data-thing': 'join' }),
        text(Math.min((x(run.read) + x(run.end)) / 2, right - 15), foot + 16, 'join', { anchor: 'middle', 'data-key': 'join-name', 'data-thing': 'join' }),
      ] : [];
      const parts = new Map();
      const nth = (sequence) => { parts.set(sequence, (parts.get(sequence) ?? -1) + 1); return parts.get(sequence); };
      stage.append(picture(width, foot + 20, said,
        Array.from({ length: PLACES }).flatMap((_, place) => [
          text(left - 6, TOP + place * ROW + 15, isNarrow(stage) ? place + 1 : `slot ${place + 1}`, { anchor: 'end' }),
          svg('line', { x1: left, x2: right, y1: TOP + place * ROW + ROW - 2, y2: TOP + place * ROW + ROW - 2,
            stroke: 'var(--y-line)' }),
        ]),
        run.bars.flatMap((program) => bar(program, nth(program[3]), x)), joined,
        text(left, foot, '0'), text(right, foot, `${scale.toLocaleString('en')} keys' time`, { anchor: 'end' })));
      return said;
    },
  });
})();
