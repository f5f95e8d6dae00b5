// Four threads in two warps of two sum four numbers, one after the other in a drawn order, each from one point
// where it must wait to the next. Without the barrier the order decides what thread 0 finds.
'use strict';

const fibreOrder = (() => {
  const NUMBERS = [1, 2, 3, 4];

  /** The n-th of the 24 orders of four threads, n from 0. */
  function order(n) {
    const left = [0, 1, 2, 3];
    return [6, 2, 1, 1].map((size) => left.splice(Math.floor(n / size) % left.length, 1)[0]);
  }

  /** What happens, in turn: [thread, what it does, what partial holds then], and what thread 0 finds. */
  function run(number, barrier) {
    const turns = order(number), partial = ['?', '?'], events = [];
    let found = null;
    const write = (thread) => {
      if (thread % 2 === 0) partial[thread / 2] = NUMBERS[thread] + NUMBERS[thread + 1];
      return thread % 2 === 0 ? `writes ${partial[thread / 2]} to partial[${thread / 2}]` : 'has nothing to write';
    };
    const read = (thread) => {
      if (thread !== 0) return 'returns';
      found = partial[1];
      return `reads ${partial[0]} and ${partial[1]}`;
    };
    const note = (thread, says) => events.push({ thread, says, partial: [...partial] });
    if (barrier) {
      for (const thread of turns) note(thread, write(thread));
      events.push({ barrier: true });
      for (const thread of order((number * 7 + 5) % 24)) note(thread, read(thread));
    } else {
      for (const thread of turns) {
        const first = write(thread);
        note(thread, `${first}, ${read(thread)}`);
      }
    }
    return { turns, events, found, lucky: found !== '?', race: !barrier };
  }

  return { order, run };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, lines } = yaie.stage;
  const { run } = fibreOrder;
  const [LEFT, TOP, ROW] = [4, 26, 26];

  /** On a phone what a thread does stands in two lines. */
  function places(stage) {
    const narrow = isNarrow(stage), width = Math.min(560, room(stage));
    const holds = narrow ? 56 : 100, name = narrow ? 74 : 82;
    return { narrow, width, name, holds, does: width - LEFT - name - holds - 4, row: narrow ? 40 : ROW };
  }

  function line(event, i, place) {
    const y = TOP + i * place.row, high = place.row - 4;
    if (event.barrier) {
      return [
        svg('line', { x1: LEFT, x2: place.width - 8, y1: y + 11, y2: y + 11, stroke: 'var(--y-orange)', 'stroke-width': 3, 'data-key': 'barrier', 'data-thing': 'barrier' }),
        svg('rect', { x: LEFT + place.name, y: y + 1, width: 128, height: 20, fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)', 'data-key': 'barrier-box', 'data-thing': 'barrier' }),
        text(LEFT + place.name + 8, y + 15, '__syncthreads()', { 'data-key': 'barrier-name', 'data-thing': 'barrier' }),
      ];
    }
    const touches = /partial|reads/.test(event.says);
    const colour = !touches ? 'grey' : event.says.includes('?') ? 'red' : 'blue';
    const kind = `${event.thread}-${/has nothing|writes/.test(event.says) ? 'writes' : 'reads'}`;
    const things = [`thread-${event.thread}`, ...(event.says.includes('reads') ? ['read'] : []), ...(event.says.includes('writes') ? ['write'] : [])];
    return [
      svg('g', { 'data-key': kind, 'data-thing': things.join(' ') },
        svg('rect', { x: LEFT, y: y + 1, width: place.name + place.does - 4, height: high,
          fill: `var(--y-${colour}-soft)`, stroke: `var(--y-${colour})` }),
        text(LEFT + 6, y + 16, `thread ${event.thread}`),
        lines(event.says, place.does - 4).map((words, n) => text(LEFT + place.name, y + 16 + 15 * n, words))),
      text(LEFT + place.name + place.does + 4, y + 16, event.partial.join('  ')),
    ];
  }

  yaie.controlled('fibre-order', {
    controls: () => [
      { name: 'seed', label: 'order', min: 1, max: 24, step: 1, value: 9 },
      { name: 'barrier', label: 'kernel', value: 'without', options: [
        ['without', 'without the barrier'], ['with', 'with the barrier']] },
    ],
    draw(stage, { seed, barrier }) {
      const { turns, events, found, lucky, race } = run(seed - 1, barrier === 'with');
      const sum = lucky ? `3 + ${found} = 10` : '3 + something';
      const said = race
        ? `Order ${turns.join(', ')}: thread 0 gets ${sum}, which is ${lucky ? 'right, by luck' : 'wrong'}. A race in any order: `
          + 'nothing says that thread 2 writes before thread 0 reads.'
        : `Order ${turns.join(', ')} up to the barrier, another one after it: thread 0 gets ${sum}, in this order and in all others.`;
      const place = places(stage);
      stage.append(picture(place.width, TOP + events.length * place.row + 4, said,
        text(LEFT, 14, 'in turn, from above'),
        text(place.width - 4, 14, place.narrow ? 'partial' : 'partial then', { anchor: 'end' }),
        events.flatMap((event, i) => line(event, i, place))));
      return said;
    },
  });
})();
