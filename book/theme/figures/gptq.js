// A row of weights, each in a window of the whole numbers around it: where it was, where it is, what it became.
'use strict';

(() => {
  const { svg } = yaie;
  const { text } = yaie.timeline;
  const [LEFT, PITCH, STEP, REACH] = [78, 58, 44, 1.6];
  const MIDDLE = 30 + REACH * STEP;
  const BOTTOM = MIDDLE + REACH * STEP;
  const [BAR, BAR_WIDTH] = [BOTTOM + 62, 8 * PITCH];
  const shown = (value) => String(value).replace('-', '−');

  function column(row, step, i) {
    const x = LEFT + (i + 0.5) * PITCH;
    const centre = Math.round(row[i]);
    const y = (value) => MIDDLE - Math.max(-REACH, Math.min(REACH, value - centre)) * STEP;
    const isRounded = i < step.rounded, isLast = i === step.rounded - 1;
    const value = step.values[i];
    const parts = [text(x, 18, `input ${i + 1}`, { size: 11, bold: isLast })];
    for (const line of [centre - 1, centre, centre + 1]) {
      parts.push(svg('line', { x1: x - 16, x2: x + 16, y1: y(line), y2: y(line), stroke: 'var(--y-grey)' }),
        text(x - 19, y(line) + 4, shown(line), { size: 11, anchor: 'end' }));
    }
    parts.push(svg('circle', { cx: x, cy: y(row[i]), r: 4.5, fill: 'none', stroke: 'var(--y-grey)', 'stroke-width': 1.5 }));
    const moved = Math.abs(value - row[i]) > 0.02;
    if (moved) {
      parts.push(svg('line', { x1: x, x2: x, y1: y(row[i]), y2: y(value), stroke: 'var(--y-blue)', 'stroke-width': 1.5 }));
    }
    parts.push(isRounded
      ? svg('rect', { x: x - 7, y: y(value) - 7, width: 14, height: 14, fill: isLast ? 'var(--y-orange)' : 'var(--y-orange-soft)',
        stroke: 'var(--y-orange)', 'stroke-width': 1.5 })
      : svg('circle', { cx: x, cy: y(value), r: 4.5, fill: 'var(--y-blue)' }));
    parts.push(text(x, BOTTOM + 26, shown(value), { size: 12, bold: isRounded }));
    return svg('g', {}, parts);
  }

  yaie.stepped('gptq', {
    draw(stage, step, { row, most }) {
      const width = LEFT + row.length * PITCH + 10;
      const error = (Math.min(step.error, most) / most) * BAR_WIDTH;
      stage.dataset.wide = 480;
      stage.append(svg('svg', { viewBox: `0 0 ${width} ${BAR + 62}`, role: 'img', 'aria-label': step.say },
        row.map((_, i) => column(row, step, i)),
        text(LEFT - 12, BOTTOM + 26, 'weight', { size: 12, anchor: 'end' }),
        text(LEFT - 12, BAR + 15, 'error', { size: 12, anchor: 'end' }),
        svg('rect', { x: LEFT, y: BAR, width: BAR_WIDTH, height: 20, fill: 'none', stroke: 'var(--y-line)' }),
        svg('rect', { x: LEFT, y: BAR, width: error, height: 20, fill: 'var(--y-red-soft)', stroke: 'var(--y-red)' }),
        text(LEFT + 8 + (error > BAR_WIDTH - 60 ? 0 : error), BAR + 15, shown(step.error), { size: 12, anchor: 'start', bold: true }),
        text(LEFT, BAR + 44, 'ring: as it was, dot: now, square: rounded', { size: 11, anchor: 'start' })));
    },
  });
})();
