// Host and device on one axis of time: who works on which step, and who waits.
'use strict';

(() => {
  const { svg } = yaie;
  const { text, scrolling } = yaie.timeline;
  const [LEFT, UNIT, ROW, TOP] = [58, 12, 40, 22];
  const LOOK = {
    plan: ['orange', 'P'],
    send: ['blue', 'L'],
    text: ['green', 'T'],
    wait: ['grey', ''],
    run: ['blue', ''],
  };

  function span([name, step, begin, end], y, now) {
    const [colour, letter] = LOOK[name];
    const [x, width] = [LEFT + begin * UNIT, (Math.min(end, now) - begin) * UNIT];
    if (width <= 0) return null;
    const look = name === 'wait'
      ? { fill: 'none', stroke: 'var(--y-line)', 'stroke-dasharray': '3 3' }
      : { fill: `var(--y-${colour}-soft)`, stroke: `var(--y-${colour})` };
    const words = name === 'wait' ? '' : `${letter}${step}`;
    return svg('g', {},
      svg('rect', { x, y, width, height: ROW - 10, ...look }),
      width >= 18 ? text(x + width / 2, y + 19, words, { size: 11 }) : null);
  }

  yaie.stepped('step-timeline', {
    draw(stage, step, data) {
      const wide = LEFT + data.end * UNIT + 14;
      const device = TOP + ROW;
      const ticks = [];
      for (let at = 0; at <= data.end; at += 10) {
        ticks.push(svg('line', { x1: LEFT + at * UNIT, x2: LEFT + at * UNIT, y1: TOP - 4, y2: device + ROW - 6,
          stroke: 'var(--y-line)' }), text(LEFT + at * UNIT, TOP - 8, at, { size: 11 }));
      }
      const here = LEFT + step.now * UNIT;
      const picture = svg('svg', { viewBox: `0 0 ${wide} ${device + ROW + 24}`, role: 'img', 'aria-label': step.say },
        ticks,
        text(LEFT - 8, TOP + 19, 'host', { anchor: 'end' }), text(LEFT - 8, device + 19, 'device', { anchor: 'end' }),
        step.host.map((one) => span(one, TOP, step.now)),
        step.device.map((one) => span(one, device, step.now)),
        svg('line', { x1: here, x2: here, y1: TOP - 4, y2: device + ROW - 6, stroke: 'currentColor', 'stroke-width': 2 }),
        text(LEFT, device + ROW + 12, 'P plan, L launch or replay, T text, dashed: the host waits', { size: 11, anchor: 'start' }));
      stage.append(scrolling(picture, wide, here));
    },
  });
})();
