// Warps that share a scheduler: one waits for memory, another computes. A simulation, cycle by cycle.
//
// Each warp repeats: start `loads` loads, which arrive together `latency` cycles later; then use the
// scheduler for `work` cycles for each of them. The scheduler serves whoever has been ready longest, and
// lets nobody in between.
'use strict';

const latencyHiding = (() => {
  /** Spans of time of every warp up to `end`: [begin, end, what], what being wait, ready or work. */
  function simulate({ warps, latency, work, loads, end }) {
    const ready = Array.from({ length: warps }, () => latency);
    const spans = ready.map(() => [[0, latency, 'wait']]);
    let now = 0, busy = 0;
    while (now < end) {
      const warp = ready.indexOf(Math.min(...ready));
      const begin = Math.max(now, ready[warp]);
      const stop = begin + work * loads;
      if (begin > ready[warp]) spans[warp].push([ready[warp], begin, 'ready']);
      spans[warp].push([begin, stop, 'work'], [stop, stop + latency, 'wait']);
      busy += Math.max(0, Math.min(stop, end) - Math.min(begin, end));
      ready[warp] = stop + latency;
      now = stop;
    }
    return { spans, busy: busy / end };
  }

  /** In the long run: a warp's own cycle is latency + work, and the scheduler serves one at a time. */
  function share({ warps, latency, work, loads }) {
    return Math.min(1, (warps * work * loads) / (latency + work * loads));
  }

  /** The least number of warps that keep the scheduler busy. */
  function enough({ latency, work, loads }) {
    return Math.ceil((latency + work * loads) / (work * loads));
  }

  return { simulate, share, enough };
})();

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const END = 2000, LEFT = 80, TOP = 4, MOST_WARPS = 16;

  function patterns() {
    return svg('defs', {}, svg('pattern', { id: 'latency-ready', width: 5, height: 5, patternUnits: 'userSpaceOnUse' },
      svg('path', { d: 'M-1 1l2-2M0 5l5-5M4 6l2-2', stroke: 'var(--y-orange)', 'stroke-width': 1.2 })));
  }

  const LOOKS = {
    wait: { fill: 'var(--y-grey-soft)', stroke: 'none' },
    ready: { fill: 'url(#latency-ready)', stroke: 'none' },
    work: { fill: 'var(--y-blue)', stroke: 'var(--bg)', 'stroke-width': 0.6 },
  };

  function bar([begin, end, what], x, y, height, attributes) {
    if (begin >= END) return null;
    return svg('rect', { x: x(begin), y, width: x(Math.min(end, END)) - x(begin), height, ...LOOKS[what], ...attributes });
  }

  yaie.controlled('latency', {
    controls: () => [
      { name: 'warps', label: 'warps', min: 1, max: MOST_WARPS, step: 1, value: 2 },
      { name: 'latency', label: 'a load takes (cycles)', min: 100, max: 1000, step: 50, value: 700 },
      { name: 'work', label: 'work per load (cycles)', min: 10, max: 200, step: 10, value: 100 },
      { name: 'loads', label: 'loads at a time', min: 1, max: 4, step: 1, value: 1 },
    ],
    tallest: () => [{}, { warps: MOST_WARPS }, { warps: MOST_WARPS, latency: 1000, work: 10 }],
    draw(stage, values) {
      const run = latencyHiding.simulate({ ...values, end: END });
      const width = room(stage), ROW = Math.min(40, 240 / values.warps);
      const x = (cycle) => LEFT + cycle * (width - LEFT - 8) / END;
      const scheduler = TOP + values.warps * ROW + 8;
      const foot = scheduler + 34;
      const share = Math.round(100 * latencyHiding.share(values));
      const enough = latencyHiding.enough(values);
      const idle = share === 100 ? 'It never waits.'
        : `It waits for memory the rest of the time; ${enough} warps would keep it busy`
          + `${enough > MOST_WARPS ? ', more than fit' : ''}.`;
      const said = `${values.warps === 1 ? '1 warp keeps' : `${values.warps} warps keep`} the scheduler busy `
        + `${share}% of the time, with ${values.warps * values.loads} loads on their way. ${idle}`;
      const rows = run.spans.flatMap((spans, warp) => [
        text(LEFT - 6, TOP + (warp + 0.5) * ROW + 3, `warp ${warp}`, { anchor: 'end', 'data-key': `name-${warp}`, 'data-thing': `warp-${warp}` }),
        ...spans.map((span, index) => bar(span, x, TOP + warp * ROW, ROW - 3,
          { 'data-key': `${warp}-${span[2]}-${index}`, 'data-thing': `warp-${warp}` }))]);
      const worked = run.spans.flatMap((spans, warp) => spans.map((span, index) => [span, warp, index]))
        .filter(([[, , what]]) => what === 'work');
      const marks = (isNarrow(stage) ? [0, 1000, 2000] : [0, 500, 1000, 1500, 2000]).map((cycle) =>
        text(x(cycle), foot - 4, cycle.toLocaleString('en'), { anchor: cycle === END ? 'end' : cycle ? 'middle' : 'start', 'data-key': `mark-${cycle}` }));
      stage.append(picture(width, foot + 2, said,
        patterns(), rows, text(LEFT - 6, scheduler + 12, 'scheduler', { anchor: 'end', 'data-key': 'scheduler' }),
        svg('rect', { x: LEFT, y: scheduler, width: width - LEFT - 8, height: 16, fill: 'none', stroke: 'var(--y-line)', 'data-key': 'all' }),
        worked.map(([span, warp, index]) => bar(span, x, scheduler, 16, { 'data-key': `on-${warp}-${index}`, 'data-thing': `warp-${warp}` })),
        marks, text(LEFT - 6, foot - 4, 'cycle', { anchor: 'end', 'data-key': 'cycle' })),
      legend([LOOKS.wait, 'waits for memory'], [LOOKS.ready, 'could go on'], [LOOKS.work, 'computes']));
      return said;
    },
  });
})();
