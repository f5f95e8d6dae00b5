// A layer on several ranks: what each holds, the row in chunks, and the messages between neighbours.
'use strict';

(() => {
  const { svg } = yaie;
  const { text } = yaie.timeline;
  const [COLUMN, GAP, LINE, CHUNK] = [150, 26, 18, 30];
  const HEAD = 26;

  const left = (rank) => rank * (COLUMN + GAP);

  function weights(rank, holds, at) {
    return holds.flatMap(([key, words], index) => {
      const y = HEAD + index * LINE, now = key !== '' && key === at;
      return [
        now ? svg('rect', { x: left(rank), y: y + 2, width: COLUMN, height: LINE, fill: 'var(--y-blue-soft)' }) : null,
        text(left(rank) + 6, y + 15, now ? `▸ ${words}` : words, { anchor: 'start', size: 11, bold: now || key === '' }),
      ];
    });
  }

  /** The row in chunks: in each, the ranks whose summands are in it, or that it is whole. */
  function row(rank, cells, top, size) {
    return cells.flatMap((summands, chunk) => {
      const whole = summands.length === size, y = top + chunk * CHUNK;
      return [
        svg('rect', { x: left(rank), y, width: COLUMN, height: CHUNK - 4, rx: 3,
          fill: whole ? 'var(--y-green-soft)' : 'var(--y-orange-soft)', stroke: whole ? 'var(--y-green)' : 'var(--y-orange)',
          'stroke-dasharray': whole ? null : '4 3' }),
        text(left(rank) + COLUMN / 2, y + 18, whole ? 'whole' : `of rank${summands.length > 1 ? 's' : ''} ${summands.join(' + ')}`, { size: 12 }),
      ];
    });
  }

  function arrow([source, target, chunk], top, foot) {
    const y = top + chunk * CHUNK + CHUNK / 2 - 2, stroke = { stroke: 'var(--y-blue)', 'stroke-width': 2.5, fill: 'none' };
    const head = (x, way) => svg('path', { d: `M${x} ${y}l${-7 * way} -5v10z`, fill: 'var(--y-blue)' });
    if (target === source + 1) {
      const [from, to] = [left(source) + COLUMN, left(target)];
      return [svg('path', { d: `M${from} ${y}H${to - 5}`, ...stroke }), head(to, 1)];
    }
    // To any other: below all columns, each source on a line of its own.
    const from = left(source) + COLUMN, to = left(target), line = 3 * source;
    return [svg('path', { d: `M${from} ${y}h${10 - line / 3}V${foot + line}H${to - 12 + line / 3}V${y}H${to - 5}`, ...stroke }), head(to, 1)];
  }

  yaie.stepped('tensor-parallel', {
    draw(stage, step, { holds }) {
      const size = holds.length, lines = Math.max(...holds.map((one) => one.length));
      const top = HEAD + lines * LINE + 28, bottom = top + size * CHUNK;
      const width = size * (COLUMN + GAP) - GAP;
      stage.dataset.wide = Math.min(620, 40 + width);
      stage.append(svg('svg', { viewBox: `-20 0 ${width + 40} ${bottom + 56}`, role: 'img', 'aria-label': step.say,
        style: `max-width: ${Math.max(240, width + 40)}px` },
        holds.flatMap((one, rank) => [
          text(left(rank) + COLUMN / 2, 16, `rank ${rank}`, { bold: true }),
          ...weights(rank, one, step.at),
          text(left(rank), top - 8, size === 1 ? 'the row' : 'the row, in chunks', { anchor: 'start', size: 11 }),
          ...row(rank, step.cells[rank], top, size),
          text(left(rank) + COLUMN / 2, bottom + 44, `sent ${step.sent[rank].toLocaleString('en')} bytes`, { size: 12, bold: true }),
        ]),
        step.messages.flatMap((message) => arrow(message, top, bottom + 14))));
    },
  });
})();
