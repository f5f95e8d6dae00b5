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
  const { MAPS, THREADS, ROWS, NUMBERS, SECTOR, moved } = copyRows;
  const LEFT = 52, TOP = 24, CELL = 16, PITCH = 24;
  const WIDTH = LEFT + NUMBERS * CELL + 60;
  const SMALL = 'font-size: 11px';
  const text = (x, y, words, anchor = 'middle') =>
    svg('text', { x, y, 'text-anchor': anchor, style: SMALL }, words);

  function row(index, counts, now) {
    const y = TOP + index * PITCH;
    const halves = [0, 1].map((half) => svg('rect', {
      x: LEFT + half * SECTOR * CELL, y, width: SECTOR * CELL, height: CELL,
      fill: now[half] ? 'var(--y-orange-soft)' : 'none',
      stroke: now[half] ? 'var(--y-orange)' : 'var(--y-line)', 'stroke-width': now[half] ? 2 : 1,
    }));
    const times = counts[index].map((count) => `×${count}`).join('  ');
    return [text(LEFT - 6, y + 12, `token ${index}`, 'end'), ...halves,
      text(LEFT + NUMBERS * CELL + 8, y + 12, times, 'start')];
  }

  function reads(list) {
    return list.flatMap(({ row: index, from, count }, thread) => {
      const x = LEFT + from * CELL, y = TOP + index * PITCH;
      return [svg('rect', { x: x + 1, y: y + 1.5, width: count * CELL - 2, height: CELL - 3, rx: 2,
        fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }),
      text(x + count * CELL / 2, y + 12, thread)];
    });
  }

  yaie.controlled('copy-rows', {
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
      stage.dataset.wide = 520;
      stage.append(svg('svg', { viewBox: `0 0 ${WIDTH} ${TOP + ROWS * PITCH + 4}`, role: 'img', 'aria-label': said },
        text(LEFT + SECTOR * CELL / 2, 14, 'first sector: 16 numbers'),
        text(LEFT + 1.5 * SECTOR * CELL, 14, 'second sector'),
        text(LEFT + NUMBERS * CELL + 8, 14, 'moved', 'start'),
        counts.flatMap((_, index) => row(index, counts, now[index])), reads(list)));
      return said;
    },
  });
})();
