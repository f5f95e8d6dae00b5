// Static above continuous batching: a row of the batch, a column for each step that both have made.
'use strict';

(() => {
  const { svg, html } = yaie;
  const { text, cell, axis, scrolling, legend, tables } = yaie.timeline;
  const [LEFT, COLUMN, ROW, WAITING] = [78, 30, 32, 22];
  const WAYS = { static: 'Static batching', continuous: 'Continuous batching' };

  /** The rows of one way of batching, step beside step, and who waits for one. */
  function panel(way, steps, numRows, high, wide) {
    const drawn = svg('svg', {
      viewBox: `0 0 ${wide} ${high}`, role: 'img', 'aria-label': `Step ${steps.length}. ${seen(way, steps.at(-1))}`,
    });
    for (let row = 0; row < numRows; row += 1) {
      const y = 2 + row * ROW;
      drawn.append(text(0, y + 20, `row ${row + 1}`, { anchor: 'start', size: 12 }));
      steps.forEach((step, column) => drawn.append(rowCell(step[way].rows[row], column, y)));
    }
    const below = numRows * ROW + 16;
    drawn.append(text(0, below, 'waiting', { anchor: 'start', size: 12 }));
    steps.forEach((step, column) => drawn.append(
      text(LEFT + (column + 0.5) * COLUMN, below, step[way].waiting.join('') || '·', { size: 12 })));
    return drawn;
  }

  function rowCell([name, tokens, kind = 'empty'], column, y) {
    const [x, width, height] = [LEFT + column * COLUMN + 1.5, COLUMN - 3, ROW - 4];
    if (kind === 'prompt') return cell(kind, x, y, width, height, name, tokens);
    return cell(kind, x, y, width, height, kind === 'answer' ? name : '');
  }

  const rowsOf = (way, steps) => steps.map((step) => step[way].rows.filter((row) => row.length));

  function firstTokens(way, steps, requests) {
    const rows = rowsOf(way, steps);
    return [way, ...requests.map(({ name }) =>
      rows.findIndex((row) => row.some(([who]) => who === name)) + 1 || '–')];
  }

  /** Steps with work, tokens of answers, and rows that were computed for nobody. */
  function sums(way, steps) {
    const rows = rowsOf(way, steps);
    const made = rows.filter((row) => row.length).length;
    const lost = rows.flat().filter(([, , kind]) => kind === 'nobody').length;
    const useful = rows.flat().length - lost;
    return [way, made, useful, (useful / made).toFixed(2), lost];
  }

  function seen(way, step) {
    const rows = step[way].rows.map(([name, , kind]) =>
      (kind === 'nobody' ? `${name} for nobody` : name ?? 'nobody'));
    const { waiting } = step[way];
    return `${WAYS[way]}: in the rows ${rows.join(', ')}; waiting ${waiting.join(', ') || 'nobody'}.`;
  }

  yaie.stepped('batching', {
    draw(stage, step, data, index) {
      const steps = data.steps.slice(0, index + 1);
      const numRows = step.static.rows.length;
      const [wide, high] = [LEFT + data.steps.length * COLUMN + 4, numRows * ROW + WAITING];
      const reach = LEFT + (index + 1) * COLUMN;
      const above = panel('static', steps, numRows, high, wide);
      const below = panel('continuous', steps, numRows, high + 32, wide);
      below.append(text(0, high + 26, 'step', { anchor: 'start', size: 12 }),
        axis(LEFT, high + 16, COLUMN, data.steps.length, index));
      const boxes = [scrolling(above, wide, reach), scrolling(below, wide, reach)];
      boxes.forEach((box, which) => {
        box.onscroll = () => { boxes[1 - which].scrollLeft = box.scrollLeft; };
      });
      const ways = Object.keys(WAYS);
      stage.append(
        ...ways.flatMap((way, which) => [html('p', { class: 'tl-name' }, html('strong', {}, WAYS[way])), boxes[which]]),
        legend(['prompt', 'prompt (its length), first token', 'A'], ['answer', 'one more token', 'A'],
          ['nobody', 'ended, computed for nobody'], ['empty', 'empty row']),
        tables(
          [['first token', ...data.requests.map(({ name }) => name)],
            ['arrives', ...data.requests.map((request) => request.arrives)],
            ...ways.map((way) => firstTokens(way, steps, data.requests))],
          [['so far', 'steps', 'tokens', 'per step', 'for nobody'], ...ways.map((way) => sums(way, steps))]));
    },
  });
})();
