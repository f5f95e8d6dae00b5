// The ladder: each part of another design alone, and all of them, against the reference; a mark for each round.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const TOP = 30;
  const middle = (values) => {
    const sorted = [...values].sort((a, b) => a - b);
    return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
  };
  const spoken = ({ name, mine }) => (mine.length > 1 ? `all ${mine.length}` : name.replace(/^your /, ''));

  yaie.controlled('ladder', {
    plays: 'rung',
    controls: (data) => [{ name: 'rung', label: 'rung', value: 1, options: data.rungs.map((rung, index) => [index, spoken(rung)]) }],
    draw(stage, { rung }, data) {
      const width = room(stage), narrow = isNarrow(stage);
      const left = narrow ? 8 : 146, right = width - 50, row = narrow ? 46 : 32, tall = 22;
      const most = Math.max(...data.rungs.flatMap(({ ratio }) => ratio)) * 1.02;
      const x = (value) => left + (value / most) * (right - left);
      const foot = TOP + data.rungs.length * row;
      const rows = data.rungs.map((each, index) => {
        const y = TOP + index * row + (narrow ? 20 : 4), chosen = index === Number(rung);
        const value = middle(each.ratio);
        return svg('g', { 'data-thing': `rung-${index}` },
          text(narrow ? left : left - 8, narrow ? y - 5 : y + tall / 2 + 4, spoken(each), { anchor: narrow ? 'start' : 'end', bold: chosen }),
          svg('rect', { x: left, y, width: x(value) - left, height: tall, fill: chosen ? 'var(--y-blue)' : 'var(--y-blue-soft)', stroke: 'var(--y-blue)', 'data-key': `bar-${index}` }),
          each.ratio.map((ratio, round) => svg('circle', { cx: x(ratio), cy: y + tall / 2, r: 4, fill: 'var(--y-orange)', stroke: 'currentColor', 'data-key': `round-${index}-${round}` })),
          text(right + 8, y + tall / 2 + 4, value.toFixed(2), { bold: chosen, 'data-key': `value-${index}` }));
      });
      const { name, mine, ratio, same } = data.rungs[rung];
      const who = mine.length > 1 ? `All ${mine.length} parts of another design` : mine[0] === 'none' ? 'The reference'
        : `The design “${data.designs[mine[0]].replace(/_/g, ' ')}” in place of the reference's ${name.replace(/^your /, '')}`;
      const said = `${who}: ${middle(ratio).toFixed(2)} times the reference's work a second of processor time `
        + `(${Math.min(...ratio).toFixed(2)} to ${Math.max(...ratio).toFixed(2)} over ${ratio.length} rounds), ${same ? 'the same tokens' : 'other tokens'}.`;
      stage.append(picture(width, foot + 8, `Work a second of processor time, for each part alone and all together. ${said}`,
        svg('line', { x1: x(1), x2: x(1), y1: TOP - 8, y2: foot, stroke: 'currentColor', 'stroke-dasharray': '5 4' }),
        text(x(1), TOP - 13, 'the reference', { anchor: 'middle' }), rows),
      legend([{ fill: 'var(--y-blue-soft)', stroke: 'var(--y-blue)', x: 2, y: 2, width: 14, height: 10 }, 'median'],
        [{ fill: 'var(--y-orange)', x: 5, y: 3, width: 8, height: 8, rx: 4 }, 'one round']));
      return said;
    },
  });
})();
