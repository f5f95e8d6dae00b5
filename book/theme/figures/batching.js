// Static above continuous batching: a row of the batch, a column for each step that both have made.
'use strict';

(() => {
  const { html } = yaie;
  const { room, isNarrow, picture } = yaie.stage;
  const { text, cell, axis, legend, tables } = yaie.timeline;
  const WAYS = { static: 'Static batching', continuous: 'Continuous batching' };

  /** The column of a step, as wide as the stage allows; the letters of those who wait stand below one another. */
  function places(stage, steps) {
    const left = isNarrow(stage) ? 20 : 66;
    const column = Math.min(40, (room(stage) - left - 4) / steps.length);
    const longest = Math.max(...steps.flatMap((step) => Object.keys(WAYS).map((way) => step[way].waiting.length)), 1);
    const row = 26;
    return { narrow: isNarrow(stage), left, column, row, wide: left + steps.length * column + 4, waits: 15 * longest + 6 };
  }

  /** The rows of one way of batching, step beside step, and who waits for one. */
  function panel(way, steps, all, place) {
    const numRows = steps[0].static.rows.length, last = steps.length - 1;
    const below = numRows * place.row + 4, isLower = way === 'continuous';
    const drawn = picture(place.wide, below + place.waits + (isLower ? 24 : 0), `Step ${steps.length}. ${seen(way, steps[last])}`);
    for (let row = 0; row < numRows; row += 1) {
      drawn.append(text(0, 2 + row * place.row + 16, place.narrow ? row + 1 : `row ${row + 1}`, { anchor: 'start' }));
      steps.forEach((step, column) => drawn.append(rowCell(way, step[way].rows[row], column, row, column === last, place)));
    }
    if (place.waits) drawn.append(text(0, below + 12, place.narrow ? 'w' : 'waiting', { anchor: 'start' }));
    steps.forEach((step, column) => drawn.append(...step[way].waiting.map((name, index) => {
      const at = [place.left + (column + 0.5) * place.column, below + 12 + index * 15];
      // Who waits now goes on into a row: the same thing, with the same key.
      return column === last ? yaie.svg('g', { 'data-key': `${way}-${name}`, 'data-thing': `request-${name}` }, text(...at, name, { bold: true }))
        : text(...at, name, { 'data-thing': `request-${name}` });
    })));
    if (isLower) drawn.append(axis(place.left, below + place.waits + 10, place.column, all, last));
    return drawn;
  }

  // In the newest column a request's cell is the request itself; it leaves a trail of cells behind.
  function rowCell(way, [name, tokens, kind = 'empty'], column, row, isNow, place) {
    const [x, width, y] = [place.left + column * place.column + 1, place.column - 2, 2 + row * place.row];
    const words = kind === 'prompt' ? (width > 32 ? `${name} ${tokens}` : name) : kind === 'answer' ? name : '';
    const key = isNow && name && kind !== 'vain' ? `${way}-${name}` : null;
    return cell(kind, x, y, width, place.row - 3, words, { 'data-key': key, 'data-thing': name ? `request-${name} ${kind}` : kind });
  }

  const rowsOf = (way, steps) => steps.map((step) => step[way].rows.filter((row) => row.length));

  function firstTokens(way, steps, requests) {
    const rows = rowsOf(way, steps);
    return [way, ...requests.map(({ name }) =>
      rows.findIndex((row) => row.some(([who]) => who === name)) + 1 || '–')];
  }

  /** Steps with work, tokens of answers, and rows that were computed for no request. */
  function sums(way, steps) {
    const rows = rowsOf(way, steps);
    const made = rows.filter((row) => row.length).length;
    const lost = rows.flat().filter(([, , kind]) => kind === 'vain').length;
    const useful = rows.flat().length - lost;
    return [way, made, useful, (useful / made).toFixed(2), lost];
  }

  function seen(way, step) {
    const rows = step[way].rows.map(([name, , kind]) =>
      (kind === 'vain' ? `${name}, ended` : name ?? 'none'));
    const { waiting } = step[way];
    return `${WAYS[way]}: in the rows ${rows.join(', ')}; waiting ${waiting.join(', ') || 'none'}.`;
  }

  yaie.stepped('batching', {
    draw(stage, step, data, index) {
      const steps = data.steps.slice(0, index + 1);
      const place = places(stage, data.steps);
      const ways = Object.keys(WAYS);
      stage.append(
        ...ways.flatMap((way) => [html('p', { class: 'tl-name', 'data-thing': way }, html('strong', {}, WAYS[way]), place.narrow ? ' (w: waiting)' : ''),
          html('div', { class: 'ways' }, panel(way, steps, data.steps.length, place))]),
        legend(['prompt', 'prompt, first token', 'A'], ['answer', 'one more token', 'A'],
          ['vain', 'ended, still computed'], ['empty', 'empty']),
        tables(
          [['first token', ...data.requests.map(({ name }) => name)],
            ...(place.narrow ? [] : [['arrives', ...data.requests.map((request) => request.arrives)]]),
            ...ways.map((way) => firstTokens(way, steps, data.requests))],
          [['so far', 'steps', 'tokens', 'per step', 'for no request'], ...ways.map((way) => sums(way, steps))]));
    },
  });
})();
