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
  const END = 2000, WIDTH = 600, LEFT = 74, ROW = 14, TOP = 20;
  const SMALL = 'font-size: 11px';
  const MOST_WARPS = 16;

  function patterns() {
    return svg('defs', {}, svg('pattern', { id: 'latency-ready', width: 5, height: 5, patternUnits: 'userSpaceOnUse' },
      svg('path', { d: 'M-1 1l2-2M0 5l5-5M4 6l2-2', stroke: 'var(--y-orange)', 'stroke-width': 1.2 })));
  }

  const LOOKS = {
    wait: { fill: 'var(--y-grey-soft)', stroke: 'none' },
    ready: { fill: 'url(#latency-ready)', stroke: 'none' },
    work: { fill: 'var(--y-blue)', stroke: 'var(--bg)', 'stroke-width': 0.6 },
  };
  const text = (x, y, words, anchor = 'start') => svg('text', { x, y, 'text-anchor': anchor, style: SMALL }, words);

  function bar(span, x, y, height) {
    const [begin, end, what] = span;
    if (begin >= END) return null;
    return svg('rect', { x: x(begin), y, width: x(Math.min(end, END)) - x(begin), height, ...LOOKS[what] });
  }

  function legend(y) {
    const entries = [['wait', 'waits for memory'], ['ready', 'could go on'], ['work', 'computes']];
    return entries.flatMap(([what, words], index) => [
      svg('rect', { x: LEFT + 150 * index, y, width: 12, height: 12, ...LOOKS[what] }),
      text(LEFT + 18 + 150 * index, y + 10, words)]);
  }

  yaie.controlled('latency', {
    controls: () => [
      { name: 'warps', label: 'warps on this scheduler', min: 1, max: MOST_WARPS, step: 1, value: 2 },
      { name: 'latency', label: 'a load takes (cycles)', min: 100, max: 800, step: 50, value: 400 },
      { name: 'work', label: 'computing per load (cycles)', min: 10, max: 200, step: 10, value: 80 },
      { name: 'loads', label: 'loads at a time', min: 1, max: 4, step: 1, value: 1 },
    ],
    draw(stage, values) {
      const run = latencyHiding.simulate({ ...values, end: END });
      const x = (cycle) => LEFT + cycle * (WIDTH - LEFT - 8) / END;
      const scheduler = TOP + values.warps * ROW + 12;
      const foot = scheduler + 40;
      const share = Math.round(100 * latencyHiding.share(values));
      const enough = latencyHiding.enough(values);
      const idle = share === 100 ? 'It never waits.'
        : `It waits for memory the rest of the time; ${enough} warps would keep it busy`
          + `${enough > MOST_WARPS ? ', more than fit' : ''}.`;
      const said = `${values.warps === 1 ? '1 warp keeps' : `${values.warps} warps keep`} the scheduler busy `
        + `${share}% of the time, with ${values.warps * values.loads} loads on their way. ${idle}`;
      const rows = run.spans.flatMap((spans, warp) => [
        text(LEFT - 6, TOP + warp * ROW + 10, `warp ${warp}`, 'end'),
        ...spans.map((span) => bar(span, x, TOP + warp * ROW, ROW - 3))]);
      const worked = run.spans.flat().filter(([, , what]) => what === 'work');
      const marks = [0, 500, 1000, 1500, 2000].map((cycle) => text(x(cycle), foot - 6, cycle.toLocaleString('en'),
        cycle === END ? 'end' : cycle ? 'middle' : 'start'));
      stage.dataset.wide = 460;
      stage.append(svg('svg', { viewBox: `0 0 ${WIDTH} ${foot + 22}`, role: 'img', 'aria-label': said },
        patterns(), rows, text(LEFT - 6, scheduler + 11, 'scheduler', 'end'),
        svg('rect', { x: LEFT, y: scheduler, width: WIDTH - LEFT - 8, height: ROW, fill: 'none', stroke: 'var(--y-line)' }),
        worked.map((span) => bar(span, x, scheduler, ROW)), marks,
        text(LEFT - 6, foot - 6, 'cycle', 'end'), legend(foot + 4)));
      return said;
    },
  });
})();
