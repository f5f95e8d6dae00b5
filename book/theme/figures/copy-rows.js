// A small warp of 8 threads copies 8 rows of 64 bytes: which bytes each instruction asks for, which sectors
// of 32 bytes move for that, and how often each sector has moved so far.
'use strict';

const copyRows = (() => {
  const THREADS = 8, ROWS = 8, NUMBERS = 32, SECTOR = 16; // numbers of 2 bytes

  /** What the threads read in each instruction: [{ row, from, count }] by thread. */
  const MAPS = {
    token: {
      label: 'a row a thread, one number at a time',
      instructions: NUMBERS,
      reads: (step) => each((thread) => ({ row: thread, from: step, count: 1 })),
    },
    number: {
      label: 'neighbours along the row, one number each',
      instructions: ROWS * NUMBERS / THREADS,
      reads: (step) => each((thread) => at(step * THREADS + thread, 1)),
    },
    pack: {
      label: 'neighbours along the row, 16 bytes each',
      instructions: ROWS * NUMBERS / (THREADS * 8),
      reads: (step) => each((thread) => at((step * THREADS + thread) * 8, 8)),
    },
  };
  const each = (make) => Array.from({ length: THREADS }, (_, thread) => make(thread));
  const at = (number, count) => ({ row: Math.floor(number / NUMBERS), from: number % NUMBERS, count });

  /** How often each sector [row][half] has moved after the first `done` instructions. */
  function moved(map, done) {
    const counts = Array.from({ length: ROWS }, () => [0, 0]);
    for (let step = 0; step < done; step += 1) {
      const touched = new Set(map.reads(step).map(({ row, from }) => `${row} ${Math.floor(from / SECTOR)}`));
      for (const key of touched) {
        const [row, half] = key.split(' ').map(Number);
        counts[row][half] += 1;
      }
    }
    return counts;
  }

  return { MAPS, THREADS, ROWS, NUMBERS, SECTOR, moved };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text } = yaie.stage;
  const { MAPS, THREADS, ROWS, NUMBERS, SECTOR, moved } = copyRows;
  const TOP = 24;

  /** On a phone a row's two sectors stand one below the other. */
  function places(stage) {
    const narrow = isNarrow(stage), left = narrow ? 22 : 66, right = 64;
    const columns = narrow ? SECTOR : NUMBERS;
    const cell = Math.min(22, (room(stage) - left - right) / columns);
    const pitch = narrow ? 44 : 26, high = 18;
    return {
      narrow, left, cell, high, width: left + columns * cell + right, height: TOP + ROWS * pitch,
      x: (from) => left + (narrow ? from % SECTOR : from) * cell,
      y: (row, half) => TOP + row * pitch + (narrow ? half * (high + 1) : 0),
      end: left + columns * cell,
    };
  }

  function row(index, counts, now, place) {
    const halves = [0, 1].flatMap((half) => [svg('rect', {
      x: place.x(half * SECTOR), y: place.y(index, half), width: SECTOR * place.cell, height: place.high,
      'data-key': `sector-${index}-${half}`, 'data-thing': `row-${index}`,
      fill: now[half] ? 'var(--y-orange-soft)' : 'var(--bg)',
      stroke: now[half] ? 'var(--y-orange)' : 'var(--y-line)', 'stroke-width': now[half] ? 2 : 1,
    })]);
    const times = (half) => `×${counts[index][half]}`;
    return [text(place.left - 6, place.y(index, 0) + 13, place.narrow ? index : `token ${index}`, { anchor: 'end', 'data-thing': `row-${index}` }), ...halves,
      ...(place.narrow ? [0, 1].map((half) => text(place.end + 8, place.y(index, half) + 13, times(half)))
        : [text(place.end + 8, place.y(index, 0) + 13, `${times(0)} ${times(1)}`)])];
  }

  function reads(list, place) {
    return list.map(({ row: index, from, count }, thread) => {
      const x = place.x(from), y = place.y(index, Math.floor(from / SECTOR));
      return svg('g', { 'data-key': `thread-${thread}`, 'data-thing': `thread-${thread} row-${index} number` },
        svg('rect', { x: x + 1, y: y + 1.5, width: count * place.cell - 2, height: place.high - 3, rx: 2,
          fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }),
        text(x + count * place.cell / 2, y + 13, thread, { anchor: 'middle' }));
    });
  }

  yaie.controlled('copy-rows', {
    plays: 'done',
    controls: () => [
      { name: 'map', label: 'who reads what', value: 'token',
        options: Object.entries(MAPS).map(([key, { label }]) => [key, label]) },
      { name: 'done', label: 'instructions done', min: 1, max: NUMBERS, step: 1, value: 2 },
    ],
    draw(stage, values) {
      const map = MAPS[values.map];
      const done = Math.min(values.done, map.instructions);
      const list = map.reads(done - 1), counts = moved(map, done);
      const now = Array.from({ length: ROWS }, (_, index) => [0, 1].map((half) =>
        list.some((read) => read.row === index && Math.floor(read.from / SECTOR) === half)));
      const asked = list.reduce((sum, read) => sum + 2 * read.count, 0);
      const sectors = now.flat().filter(Boolean).length;
      const total = counts.flat().reduce((sum, count) => sum + count, 0);
      const whole = moved(map, map.instructions).flat().reduce((sum, count) => sum + count, 0);
      const said = `Instruction ${done} of ${map.instructions}: ${THREADS} threads ask for ${asked} bytes, which lie in `
        + `${sectors} ${sectors === 1 ? 'sector' : 'sectors'}, so ${32 * sectors} bytes move. `
        + `${total} sectors have moved so far; at the end it will be ${whole}, for rows that fill 16.`;
      const place = places(stage);
      stage.append(picture(place.width, place.height, said,
        text(place.left, 14, place.narrow ? 'token; its two sectors' : 'first sector: 16 numbers'),
        place.narrow ? null : text(place.x(SECTOR), 14, 'second sector'),
        text(place.end + 8, 14, 'moved'),
        counts.flatMap((_, index) => row(index, counts, now[index], place)), reads(list, place)));
      return said;
    },
  });
})();
