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
      + `${state.partial.includes(null) ? ' Where no warp has written, a 0 happens to lie today.' : ''}`;
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
      barrier('every warp has read the partial sums of an earlier call.'),
      write(0), write(2), write(1), barrier('all three partial sums are there.'), read(0), read(1), read(2), end('both')] },
    reading: { label: 'none before reading', events: [exchange(2), exchange(1),
      barrier('every warp has read the partial sums of an earlier call.'),
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
  const { room, picture, text } = yaie.stage;
  const { WARPS, LANES, WAYS, states } = blockSum;
  const [TOP, SHARED, RESULT, HIGH] = [26, 118, 196, 30];
  const MOST = Math.max(...Object.values(WAYS).map(({ events }) => events.length));

  /** Where things stand in a stage: warps side by side, places of shared memory below them. */
  function places(stage) {
    const width = Math.min(600, room(stage));
    const gap = width < 480 ? 8 : 30, cell = Math.min(38, (width - 2 * gap - 4) / (WARPS * LANES));
    const left = (warp) => 2 + warp * (LANES * cell + gap);
    return { width: left(WARPS) - gap + 2, cell, left };
  }

  function warpOf(state, w, { cell, left }) {
    const active = state.active.includes(w);
    const again = state.call[w] === 2 ? ', next sum' : '';
    return [text(left(w) + LANES * cell / 2, TOP - 8, `warp ${w}${again}`, { anchor: 'middle', 'data-thing': `warp-${w}` }),
      ...state.lanes[w].flatMap((value, lane) => [
        svg('rect', { x: left(w) + lane * cell, y: TOP, width: cell, height: 34, 'data-key': `lane-${w}-${lane}`, 'data-thing': `warp-${w}`,
          fill: active ? 'var(--y-blue-soft)' : 'var(--bg)', stroke: active ? 'var(--y-blue)' : 'var(--y-grey)',
          'stroke-width': active ? 2 : 1 }),
        text(left(w) + (lane + 0.5) * cell, TOP + 22, value, { anchor: 'middle', size: 14, 'data-key': `value-${w}-${lane}-${value}` })])];
  }

  function shared(state, { cell, left }) {
    const x = (w) => left(1) + (w - 1) * 2.4 * cell + LANES * cell / 2 - cell;
    const one = state.active.length === 1 ? state.active[0] : null;
    const lines = one !== null && state.touched !== null
      ? state.partial.map((_, w) => w).filter((w) => state.touched === 'all' || state.touched === w)
        .map((w) => svg('line', { x1: left(one) + cell / 2, y1: TOP + 34,
          x2: x(w) + cell, y2: SHARED, stroke: 'var(--y-blue)', 'stroke-width': 1.5, 'data-key': `line-${w}`,
          'stroke-dasharray': state.touched === 'all' ? '4 3' : null }))
      : [];
    return [...lines, text(left(0), SHARED - 14, 'shared memory', { 'data-thing': 'shared' }),
      ...state.partial.flatMap((value, w) => [
        svg('rect', { x: x(w), y: SHARED, width: 2 * cell, height: 34, 'data-key': `place-${w}`, 'data-thing': `shared warp-${w}`,
          fill: 'var(--y-green-soft)', stroke: 'var(--y-green)', 'stroke-width': state.touched === w ? 3 : 1 }),
        // Written by lane 0 of its warp: it comes from there.
        value === null ? text(x(w) + cell, SHARED + 22, '?', { anchor: 'middle', size: 14 })
          : text(x(w) + cell, SHARED + 22, value, { anchor: 'middle', size: 14, 'data-key': `partial-${w}-${value}` })])];
  }

  function results(state, { cell, left }) {
    return state.result.flatMap((value, w) => {
      const wrong = value !== null && value !== 78;
      return [svg('rect', { x: left(w), y: RESULT, width: LANES * cell, height: HIGH, rx: 4, 'data-key': `result-${w}`, 'data-thing': `result warp-${w}`,
        fill: value === null ? 'var(--bg)' : wrong ? 'var(--y-red-soft)' : 'var(--y-blue-soft)',
        stroke: wrong ? 'var(--y-red)' : 'var(--y-grey)', 'stroke-width': wrong ? 2.5 : 1 }),
      text(left(w) + LANES * cell / 2, RESULT + 20, value === null ? 'no result' : wrong ? `${value}: wrong` : `all: ${value}`, { anchor: 'middle' })];
    });
  }

  yaie.controlled('block-sum', {
    plays: 'step',
    controls: () => [
      { name: 'way', label: 'barriers', value: 'both',
        options: Object.entries(WAYS).map(([key, { label }]) => [key, label]) },
      { name: 'step', label: 'step', min: 0, max: MOST, step: 1, value: 0 },
    ],
    draw(stage, values) {
      const list = states(values.way);
      const state = list[Math.min(values.step, list.length - 1)];
      const place = places(stage);
      const bar = state.barrier ? [svg('line', { x1: 2, x2: place.width - 2, y1: 84, y2: 84, stroke: 'var(--y-orange)',
        'stroke-width': 4, 'data-key': 'barrier', 'data-thing': 'barrier' }),
      text(place.width - 4, 78, '__syncthreads()', { anchor: 'end', 'data-key': 'barrier-name', 'data-thing': 'barrier' })] : [];
      stage.append(picture(place.width, 230, state.say,
        state.lanes.flatMap((_, w) => warpOf(state, w, place)), bar, shared(state, place), results(state, place)));
      return state.say;
    },
  });
})();
