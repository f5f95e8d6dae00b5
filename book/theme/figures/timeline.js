// What the figures about time share: cells on a grid of steps, legends, small tables of counters.
// Loaded after base.js and before the figures that draw with it.
'use strict';

yaie.timeline = (() => {
  const { svg, html } = yaie;
  const STYLE = `
    .tl-tables { display: flex; flex-wrap: wrap; gap: 0.6em 1.6em; align-items: start;
      margin: 0.5em 0 0; font-size: 13px; }
    .content .stage .tl-name { margin: 0.3em 0 0.1em; }
    .content .stage .tl-tables :is(th, td) { padding: 1px clamp(3px, 0.8vw, 9px); text-align: center; }
    .content .stage .tl-tables :is(th, td):first-child { text-align: left; font-weight: 600; }
    .tl-legend { display: flex; flex-wrap: wrap; gap: 0.2em 1.2em; margin: 0.4em 0 0; font-size: 13px; }
    .tl-legend span { display: inline-flex; align-items: center; gap: 0.4em; }
    figure.moving .stage .tl-legend svg { width: 30px; min-width: 30px; margin: 0; }`;
  document.head.append(html('style', {}, STYLE));

  // A kind of cell by colour, and by what can be told without colour: edge, hatching, dashes.
  const KINDS = {
    prompt: { fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', 'stroke-width': 2.5 },
    answer: { fill: 'var(--y-orange-soft)', stroke: 'var(--y-orange)' },
    vain: { fill: 'var(--y-grey-soft)', stroke: 'var(--y-grey)', hatched: true },
    empty: { fill: 'none', stroke: 'var(--y-line)', 'stroke-dasharray': '3 3' },
  };

  // As yaie.stage.text, but in the middle unless told otherwise.
  const text = (x, y, words, { anchor = 'middle', ...rest } = {}) => yaie.stage.text(x, y, words, { anchor, ...rest });

  /** Diagonal lines within a rectangle, drawn out: a <pattern> would need an id of its own. */
  function hatching(x, y, width, height, gap = 6) {
    let path = '';
    for (let reach = gap; reach < width + height; reach += gap) {
      const [left, right] = [Math.max(0, reach - height), Math.min(width, reach)];
      path += `M${x + left} ${y + reach - left}L${x + right} ${y + reach - right}`;
    }
    return svg('path', { d: path, stroke: 'var(--y-grey)', 'stroke-width': 1 });
  }

  /** A cell of a kind with a line of text. attributes: of its group, such as data-key. */
  function cell(kind, x, y, width, height, words = '', attributes = {}) {
    const { hatched, ...look } = KINDS[kind];
    return svg('g', attributes,
      svg('rect', { x, y, width, height, rx: 3, 'stroke-width': 1, ...look }),
      hatched ? hatching(x, y, width, height) : null,
      words === '' ? null : text(x + width / 2, y + height / 2 + 4.5, words, { bold: true }));
  }

  /** The numbers of the steps, the current one marked. */
  function axis(x, y, width, columns, current) {
    return svg('g', {}, Array.from({ length: columns }, (_, column) => {
      const middle = x + (column + 0.5) * width;
      const here = column === current;
      return svg('g', {},
        here ? svg('path', { d: `M${middle - 5} ${y - 3}h10l-5 -6z`, fill: 'currentColor', 'data-key': 'here' }) : null,
        width > 17 || here || (column % 2 === 0 && Math.abs(column - current) > 1)
          ? text(middle, y + 10, column + 1, { bold: here }) : null);
    }));
  }

  /** What each kind of cell means: pairs of [kind, words], with what stands in the cell as a third. */
  function legend(...items) {
    return html('p', { class: 'tl-legend' }, items.map(([kind, words, inside = '']) =>
      html('span', {},
        svg('svg', { viewBox: '0 0 30 20', 'aria-hidden': 'true' }, cell(kind, 2, 2, 26, 16, inside)),
        words)));
  }

  /** Tables of counters side by side; each is a row of heads, then rows that begin with their name. A single capital
      is a request, and lit with it. */
  function tables(...all) {
    const cellOf = (tag, scope) => (words) =>
      html(tag, { scope, 'data-thing': /^[A-Z]$/.test(words) ? `request-${words}` : null }, words);
    return html('div', { class: 'tl-tables' }, all.map(([heads, ...rows]) => html('table', {},
      html('thead', {}, html('tr', {}, heads.map(cellOf('th', 'col')))),
      html('tbody', {}, rows.map(([name, ...values]) =>
        html('tr', {}, cellOf('th', 'row')(name), values.map(cellOf('td'))))))));
  }

  return { KINDS, text, hatching, cell, axis, legend, tables };
})();
