// Host and device on one axis of time: who works on which step, and who waits.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, picture, text } = yaie.stage;
  const [LEFT, ROW, TOP, LEAST] = [58, 36, 22, 7.5];
  const HIGH = 2 * ROW + 26;
  const LOOK = {
    plan: ['orange', 'P'],
    send: ['blue', 'L'],
    text: ['green', 'T'],
    wait: ['grey', ''],
    run: ['blue', ''],
  };

  /** The axis of time in as many lines as its units need: { chunk, unit, lines }. */
  function lay(stage, end) {
    const wide = room(stage) - LEFT - 14;
    const lines = Math.ceil((end * LEAST) / wide);
    const chunk = lines === 1 ? end : Math.ceil(end / lines / 10) * 10;
    return { chunk, unit: wide / chunk, lines: Math.ceil(end / chunk), width: room(stage) };
  }

  /** A span of work up to now, cut where its line ends. row: 0 of the host, 1 of the device. */
  function span([name, step, begin, end], row, now, { chunk, unit }, key) {
    const parts = [];
    const stop = Math.min(end, now);
    for (let line = Math.floor(begin / chunk); line * chunk < stop; line += 1) {
      const [from, to] = [Math.max(begin, line * chunk), Math.min(stop, (line + 1) * chunk)];
      if (to <= from) continue;
      const [colour, letter] = LOOK[name];
      const [x, width, y] = [LEFT + (from - line * chunk) * unit, (to - from) * unit, line * HIGH + TOP + row * ROW];
      const look = name === 'wait'
        ? { fill: 'none', stroke: 'var(--y-line)', 'stroke-dasharray': '3 3' }
        : { fill: `var(--y-${colour}-soft)`, stroke: `var(--y-${colour})` };
      const mine = { 'data-thing': `step-${step} ${name}` };
      parts.push(svg('rect', { x, y, width, height: ROW - 8, ...look, 'data-key': `${key}-${line}`, ...mine }),
        width >= 18 && name !== 'wait' ? text(x + width / 2, y + 18, `${letter}${step}`, { anchor: 'middle', 'data-key': `${key}-name-${line}`, ...mine }) : null);
    }
    return parts;
  }

  function axis(line, end, place) {
    const top = line * HIGH + TOP, marks = [];
    for (let at = line * place.chunk; at <= Math.min(end, (line + 1) * place.chunk); at += 10) {
      const x = LEFT + (at - line * place.chunk) * place.unit;
      marks.push(svg('line', { x1: x, x2: x, y1: top - 4, y2: top + 2 * ROW - 8, stroke: 'var(--y-line)' }),
        text(x, top - 8, at, { anchor: 'middle' }));
    }
    return [...marks, text(LEFT - 8, top + 18, 'host', { anchor: 'end' }), text(LEFT - 8, top + ROW + 18, 'device', { anchor: 'end' })];
  }

  yaie.stepped('step-timeline', {
    draw(stage, step, data) {
      const place = lay(stage, data.end);
      const line = Math.min(place.lines - 1, Math.floor(step.now / place.chunk));
      const here = LEFT + (step.now - line * place.chunk) * place.unit, top = line * HIGH + TOP;
      stage.append(picture(place.width, place.lines * HIGH + 2, step.say,
        Array.from({ length: place.lines }).flatMap((_, each) => axis(each, data.end, place)),
        step.host.flatMap((one, i) => span(one, 0, step.now, place, `host-${i}`)),
        step.device.flatMap((one, i) => span(one, 1, step.now, place, `device-${i}`)),
        svg('line', { x1: here, x2: here, y1: top - 4, y2: top + 2 * ROW - 6, stroke: 'currentColor', 'stroke-width': 2, 'data-key': 'now' })),
      yaie.stage.legend([{ fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)' }, 'P plan'],
        [{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)' }, 'L launch or replay; below, kernels'],
        [{ fill: 'var(--y-green-soft)', stroke: 'var(--y-green)' }, 'T text'],
        [{ fill: 'none', stroke: 'var(--y-line)', 'stroke-dasharray': '3 3' }, 'the host waits']));
    },
  });
})();
