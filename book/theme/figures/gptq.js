// A row of weights, each in a window of the whole numbers around it: where it was, where it is, what it became.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const [STEP, REACH] = [38, 1.6];
  const [TOP, HIGH] = [28, 2 * REACH * STEP];
  const shown = (value) => String(value).replace('-', '−');

  /** Eight inputs in a row; on a phone four and four. */
  function places(stage, count) {
    const across = isNarrow(stage) ? 4 : 8, left = 58, width = room(stage);
    const pitch = Math.min(84, (width - left - 2) / across), high = TOP + HIGH + 32;
    return {
      left, width: left + across * pitch + 2, bar: Math.ceil(count / across) * high + 6,
      x: (i) => left + ((i % across) + 0.5) * pitch,
      top: (i) => Math.floor(i / across) * high,
      lines: Array.from({ length: Math.ceil(count / across) }, (_, line) => line * high),
    };
  }

  function column(row, step, i, place) {
    const x = place.x(i), top = place.top(i);
    const centre = Math.round(row[i]);
    const middle = top + TOP + HIGH / 2;
    const y = (value) => middle - Math.max(-REACH, Math.min(REACH, value - centre)) * STEP;
    const isRounded = i < step.rounded, isLast = i === step.rounded - 1;
    const value = step.values[i];
    const mine = { 'data-thing': `input-${i + 1}${isRounded ? ' rounded' : ' now'}` };
    const parts = [text(x, top + 14, `input ${i + 1}`, { bold: isLast, anchor: 'middle', ...mine })];
    for (const line of [centre - 1, centre, centre + 1]) {
      parts.push(svg('line', { x1: x - 14, x2: x + 16, y1: y(line), y2: y(line), stroke: 'var(--y-grey)' }),
        text(x - 17, y(line) + 4, shown(line), { anchor: 'end' }));
    }
    parts.push(svg('circle', { cx: x, cy: y(row[i]), r: 4.5, fill: 'none', stroke: 'var(--y-grey)', 'stroke-width': 1.5 }));
    if (Math.abs(value - row[i]) > 0.02) {
      parts.push(svg('line', { x1: x, x2: x, y1: y(row[i]), y2: y(value), stroke: 'var(--y-blue)', 'stroke-width': 1.5, 'data-key': `moved-${i}` }));
    }
    // Dot and square are centred alike, so that the one goes on from where the other was.
    parts.push(svg('g', { 'data-key': `weight-${i}`, ...mine }, isRounded
      ? svg('rect', { x: x - 7, y: y(value) - 7, width: 14, height: 14, fill: isLast ? 'var(--y-orange)' : 'var(--y-orange-soft)',
        stroke: 'var(--y-orange)', 'stroke-width': 1.5 })
      : svg('circle', { cx: x, cy: y(value), r: 7, fill: 'var(--y-blue)' })));
    parts.push(text(x, top + TOP + HIGH + 20, shown(value), { bold: isRounded, anchor: 'middle', ...mine }));
    return parts;
  }

  yaie.stepped('gptq', {
    draw(stage, step, { row, most }) {
      const place = places(stage, row.length);
      const whole = place.width - place.left - 2;
      const error = (Math.min(step.error, most) / most) * whole;
      stage.append(picture(place.width, place.bar + 26, step.say,
        row.map((_, i) => column(row, step, i, place)),
        place.lines.map((top) => text(place.left - 8, top + TOP + HIGH + 20, 'weight', { anchor: 'end' })),
        text(place.left - 8, place.bar + 15, 'error', { anchor: 'end', 'data-thing': 'error' }),
        svg('rect', { x: place.left, y: place.bar, width: whole, height: 20, fill: 'none', stroke: 'var(--y-line)' }),
        svg('rect', { x: place.left, y: place.bar, width: error, height: 20, fill: 'var(--y-red-soft)', stroke: 'var(--y-red)', 'data-key': 'error', 'data-thing': 'error' }),
        text(place.left + 8 + (error > whole - 60 ? 0 : error), place.bar + 15, shown(step.error), { bold: true, 'data-key': 'error-number', 'data-thing': 'error' })),
      legend([{ fill: 'none', stroke: 'var(--y-grey)', rx: 6 }, 'ring: as it was'], [{ fill: 'var(--y-blue)', rx: 6 }, 'dot: now'],
        [{ fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)' }, 'square: rounded']));
    },
  });
})();
