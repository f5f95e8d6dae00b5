// The sum of 12 threads in 3 warps of 4: exchanges within a warp, partial sums in shared memory, and what
// becomes of them with a barrier less. Each way is a list of events in one possible order.
'use strict';

const blockSum = (() => {
  const WARPS = 3, LANES = 4;

  const start = () => ({
    lanes: Array.from({ length: WARPS }, (_, w) => Array.from({ length: LANES }, (_, i) => w * LANES + i + 1)),
    partial: Array.from({ length: WARPS }, () => null),
    result: Array.from({ length: WARPS }, () => null),
    call: Array.from({ length: WARPS }, () => 1),
    active: [], touched: null, barrier: false,
    say: 'Twelve threads hold 1 to 12. The sum is 78.',
  });

  const copy = (state) => ({
    ...state, lanes: state.lanes.map((row) => [...row]), partial: [...state.partial],
    result: [...state.result], call: [...state.call], active: [], touched: null, barrier: false,
  });

  const all = [0, 1, 2];
  const exchange = (distance, warps = all) => (state) => {
    for (const w of warps) {
      const old = [...state.lanes[w]];
      state.lanes[w] = old.map((value, lane) => value + old[lane ^ distance]);
    }
    state.active = warps;
    state.say = `Each lane adds what the lane ${distance} further on holds, counted with xor: `
      + (distance === 2 ? 'pairs 0 and 2, 1 and 3.' : 'pairs 0 and 1, 2 and 3. Every lane has the sum of its warp.');
  };
  const write = (w) => (state) => {
    state.partial[w] = state.lanes[w][0];
    state.active = [w];
    state.touched = w;
    state.say = `Lane 0 of warp ${w} writes ${state.lanes[w][0]} to place ${w} of shared memory.`;
  };
  const barrier = (why) => (state) => { state.barrier = true; state.say = `A barrier: ${why}`; };
  const read = (w) => (state) => {
    const found = state.partial.map((value) => value ?? 0);
    state.result[w] = found.reduce((a, b) => a + b, 0);
    state.active = [w];
    state.touched = 'all';
    const shown = state.partial.map((value) => value ?? '0').join(' + ');
    state.say = `Warp ${w} reads all places and adds them up: ${shown} = ${state.result[w]}`
      + `${state.result[w] === 78 ? '.' : ', and not 78.'}`
      + `${state.partial.includes(null) ? ' Where nobody has written, a 0 happens to lie today.' : ''}`;
  };
  const again = (w) => (state) => {
    state.call[w] = 2;
    state.lanes[w] = [4, 4, 4, 4];
    state.active = [w];
    state.say = `Warp ${w} goes on to the next sum, of twelve ones. Its own part of that is 4.`;
  };
  const ENDS = {
    both: 'All threads have 78, and the next call begins with a barrier.',
    reading: 'Three warps, three sums: 10, 36 and 78. On another day, in another order, all may have 78.',
    between: 'Warp 2 has 72, and nothing has failed. The sum that follows will be right.',
  };
  const end = (key) => (state) => { state.say = ENDS[key]; };

  const WAYS = {
    both: { label: 'both', events: [exchange(2), exchange(1),
      barrier('whoever still read the partial sums of an earlier call has read them.'),
      write(0), write(2), write(1), barrier('all three partial sums are there.'), read(0), read(1), read(2), end('both')] },
    reading: { label: 'none before reading', events: [exchange(2), exchange(1),
      barrier('whoever still read the partial sums of an earlier call has read them.'),
      write(0), read(0), write(1), read(1), write(2), read(2), end('reading')] },
    between: { label: 'none between two calls', events: [exchange(2), exchange(1),
      write(0), write(1), write(2), barrier('all three partial sums are there.'), read(0), read(1),
      again(0), write(0), read(2), end('between')] },
  };

  /** The states of one way, from the beginning to the end. */
  function states(key) {
    const list = [start()];
    for (const event of WAYS[key].events) {
      const next = copy(list[list.length - 1]);
      event(next);
      list.push(next);
    }
    return list;
  }

  return { WARPS, LANES, WAYS, states };
})();

(() => {
  const { svg } = yaie;
  const { WARPS, LANES, WAYS, states } = blockSum;
  const WIDTH = 540, CELL = 34, GAP = 30, LEFT = 20, TOP = 26, SHARED = 118, RESULT = 196;
  const SMALL = 'font-size: 12px';
  const MOST = Math.max(...Object.values(WAYS).map(({ events }) => events.length));
  const text = (x, y, words, style = SMALL, anchor = 'middle') =>
    svg('text', { x, y, 'text-anchor': anchor, style }, words);
  const left = (warp) => LEFT + warp * (LANES * CELL + GAP);

  function warpOf(state, w) {
    const active = state.active.includes(w);
    const again = state.call[w] === 2 ? ', next sum' : '';
    return [text(left(w) + LANES * CELL / 2, TOP - 8, `warp ${w}${again}`),
      ...state.lanes[w].flatMap((value, lane) => [
        svg('rect', { x: left(w) + lane * CELL, y: TOP, width: CELL, height: CELL,
          fill: active ? 'var(--y-blue-soft)' : 'none', stroke: active ? 'var(--y-blue)' : 'var(--y-grey)',
          'stroke-width': active ? 2 : 1 }),
        text(left(w) + (lane + 0.5) * CELL, TOP + 22, value, 'font-size: 14px')])];
  }

  function shared(state) {
    const x = (w) => left(1) - CELL + w * 2 * CELL;
    const lines = state.active.length === 1 && state.touched !== null
      ? state.partial.map((_, w) => w).filter((w) => state.touched === 'all' || state.touched === w)
        .map((w) => svg('line', { x1: left(state.active[0]) + CELL / 2, y1: TOP + CELL,
          x2: x(w) + CELL, y2: SHARED, stroke: 'var(--y-blue)', 'stroke-width': 1.5,
          'stroke-dasharray': state.touched === 'all' ? '4 3' : null }))
      : [];
    return [...lines, text(x(0) - 8, SHARED + 22, 'shared memory', SMALL, 'end'),
      ...state.partial.flatMap((value, w) => [
        svg('rect', { x: x(w), y: SHARED, width: 2 * CELL - 6, height: CELL,
          fill: 'var(--y-green-soft)', stroke: 'var(--y-green)', 'stroke-width': state.touched === w ? 3 : 1 }),
        text(x(w) + CELL - 3, SHARED + 22, value ?? '?', 'font-size: 14px')])];
  }

  function results(state) {
    return state.result.flatMap((value, w) => {
      const wrong = value !== null && value !== 78;
      return [svg('rect', { x: left(w), y: RESULT, width: LANES * CELL, height: CELL - 4, rx: 4,
        fill: value === null ? 'none' : wrong ? 'var(--y-red-soft)' : 'var(--y-blue-soft)',
        stroke: wrong ? 'var(--y-red)' : 'var(--y-grey)', 'stroke-width': wrong ? 2.5 : 1 }),
      text(left(w) + LANES * CELL / 2, RESULT + 20,
        value === null ? 'no result yet' : wrong ? `${value}: wrong` : `all lanes: ${value}`)];
    });
  }

  yaie.controlled('block-sum', {
    controls: () => [
      { name: 'way', label: 'barriers', value: 'both',
        options: Object.entries(WAYS).map(([key, { label }]) => [key, label]) },
      { name: 'step', label: 'step', min: 0, max: MOST, step: 1, value: 0 },
    ],
    draw(stage, values) {
      const list = states(values.way);
      const state = list[Math.min(values.step, list.length - 1)];
      stage.dataset.wide = 480;
      const bar = state.barrier ? [svg('line', { x1: 8, x2: WIDTH - 8, y1: 86, y2: 86, stroke: 'var(--y-orange)',
        'stroke-width': 4 }), text(WIDTH - 10, 80, '__syncthreads()', SMALL, 'end')] : [];
      stage.append(svg('svg', { viewBox: `0 0 ${WIDTH} 236`, role: 'img', 'aria-label': state.say },
        state.lanes.flatMap((_, w) => warpOf(state, w)), bar, shared(state), results(state)));
      return state.say;
    },
  });
})();
