// A layer on several ranks: what each holds, the row in chunks, and the messages between neighbours.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, lines } = yaie.stage;
  const HEAD = 20;

  /** Where things stand: ranks side by side; on a phone in two columns, in the order of the ring, so that neighbours touch. */
  function layout(stage, holds) {
    const narrow = isNarrow(stage), width = room(stage), size = holds.length;
    const columns = narrow ? Math.min(2, size) : size;
    const [edge, gap, line, chunk] = narrow ? [12, 20, 15, 20] : [14, 24, 18, 30];
    const column = Math.min(320, (width - 2 * edge - (columns - 1) * gap) / columns);
    const shown = holds.map((one) => one.flatMap(([key, words]) =>
      lines(narrow ? words.replace(/ (of|for) /, ' ') : words, column - 10).map((part, at) => [key, part, at === 0])));
    const top = HEAD + line * Math.max(...shown.map((one) => one.length)) + 24; // of the chunks
    const cell = top + size * chunk, tall = cell + (narrow ? 8 : 28);
    const start = (width - columns * column - (columns - 1) * gap) / 2;
    const at = (rank) => {
      const row = Math.floor(rank / columns), nth = rank % columns;
      const across = row % 2 ? columns - 1 - nth : nth;
      return { row, across, x: start + across * (column + gap), y: row * tall };
    };
    return { narrow, width, height: Math.ceil(size / columns) * tall, column, line, chunk, shown, top, cell, at };
  }

  function weights(rank, now, { at, shown, line, column }) {
    const { x, y } = at(rank);
    let lit = 0;
    return shown[rank].map(([key, words, first], index) => {
      const isNow = key !== '' && key === now, low = y + HEAD + index * line, mine = { 'data-thing': key === '' ? null : `weight-${key}` };
      return [
        isNow ? svg('rect', { x, y: low + 1, width: column, height: line, fill: 'var(--y-blue-soft)', 'data-key': `now-${rank}-${lit++}` }) : null,
        isNow && first ? text(x, low + line - 3, '▸', { bold: true }) : null,
        text(x + 10, low + line - 3, words, { bold: isNow || key === '', ...mine }),
      ];
    });
  }

  /** The row in chunks: in each, the ranks whose summands are in it, or that it is whole. */
  function row(rank, cells, { at, top, chunk: high, column, narrow }) {
    const { x, y } = at(rank);
    return cells.map((summands, chunk) => {
      const whole = summands.length === cells.length, low = y + top + chunk * high, mine = { 'data-thing': `chunk-${chunk}` };
      const ranks = `rank${summands.length > 1 ? 's' : ''} ${summands.join(' + ')}`;
      return [
        svg('rect', { x, y: low, width: column, height: high - 3, rx: 3,
          fill: whole ? 'var(--y-green-soft)' : 'var(--y-orange-soft)', stroke: whole ? 'var(--y-green)' : 'var(--y-orange)',
          'stroke-dasharray': whole ? null : '4 3', 'data-key': `chunk-${rank}-${chunk}`, ...mine }),
        text(x + column / 2, low + (high - 3) / 2 + 4.5, whole ? 'whole' : narrow ? ranks : `of ${ranks}`,
          { anchor: 'middle', 'data-key': `summands-${rank}-${chunk}`, ...mine }),
      ];
    });
  }

  /** The line of a message and the way its head points, by where its two ranks stand. */
  function route([source, target, chunk], { at, top, chunk: high, column, cell, narrow }) {
    const [from, to] = [at(source), at(target)];
    const [y1, y2] = [from, to].map(({ y }) => y + top + chunk * high + (high - 3) / 2);
    const [left, right] = [(spot) => spot.x, (spot) => spot.x + column];
    const besides = from.row === to.row && Math.abs(from.across - to.across) === 1 && (narrow || to.across > from.across);
    if (besides) {
      const way = to.across > from.across ? 1 : -1;
      const [begin, end] = way > 0 ? [right(from), left(to)] : [left(from), right(to)];
      return { line: `M${begin} ${y1}H${end - 5 * way}`, end, y: y2, way };
    }
    if (narrow) {
      // To another row: in the margin of a common column, else in the gap between the two.
      const same = from.across === to.across, outer = from.across === 0 ? left : right;
      const begin = same ? outer(from) : from.across === 0 ? right(from) : left(from);
      const end = same ? outer(to) : to.across === 0 ? right(to) : left(to);
      const lane = same ? begin + (from.across === 0 ? -1 : 1) * (7 + 3 * from.row) : begin + (from.across === 0 ? 1 : -1) * (9 + 2 * from.row);
      const way = lane < end ? 1 : -1;
      return { line: `M${begin} ${y1}H${lane}V${y2}H${end - 5 * way}`, end, y: y2, way };
    }
    // To any other: below all columns, each source on a line of its own.
    const low = cell + 8 + 4 * source, end = left(to);
    return { line: `M${right(from)} ${y1}h${11 - source}V${low}H${end - 13 + source}V${y2}H${end - 5}`, end, y: y2, way: 1 };
  }

  function arrow(message, laid) {
    const [source, target, chunk] = message;
    const { line, end, y, way } = route(message, laid);
    const mine = (what) => ({ 'data-key': `${what}-${source}-${target}`, 'data-thing': `chunk-${chunk}` });
    return [
      svg('path', { d: line, stroke: 'var(--y-blue)', 'stroke-width': 2.5, fill: 'none', ...mine('line') }),
      svg('path', { d: `M${end} ${y}l${-7 * way} -5v10z`, fill: 'var(--y-blue)', ...mine('head') }),
    ];
  }

  yaie.stepped('tensor-parallel', {
    draw(stage, step, { holds }) {
      const laid = layout(stage, holds);
      stage.append(picture(laid.width, laid.height, step.say,
        holds.map((_, rank) => {
          const { x, y } = laid.at(rank);
          return [
            text(x + laid.column / 2, y + 14, `rank ${rank}`, { anchor: 'middle', bold: true }),
            weights(rank, step.at, laid),
            text(x, y + laid.top - 6, 'row'),
            text(x + laid.column, y + laid.top - 6, `sent ${step.sent[rank].toLocaleString('en')} ${laid.narrow ? 'B' : 'bytes'}`,
              { anchor: 'end', bold: true, 'data-key': `sent-${rank}` }),
            row(rank, step.cells[rank], laid),
          ];
        }),
        step.messages.map((message) => arrow(message, laid))));
    },
  });
})();
