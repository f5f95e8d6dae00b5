// One prompt on four ranks: which pairs of pieces each computes under a causal mask, and how much work that is.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, isNarrow, picture, text, legend } = yaie.stage;
  const RANKS = 4, PIECES = 16, LEFT = 56, TOP = 22, GAP = 28;
  const LOOKS = ['blue', 'orange', 'green', 'purple'].map((name) => ({ fill: `var(--y-${name}-soft)`, stroke: `var(--y-${name})` }));
  const WAYS = [['order', 'in order'], ['turns', 'in turns'], ['zigzag', 'in zigzag']];

  /** The square of queries and keys. A pair on the diagonal is half: a query sees the keys up to its own. */
  function square(owners, side) {
    const size = side / PIECES;
    return owners.flatMap((rank, query) => [
      text(LEFT - 6, TOP + (query + 0.5) * size + 4, `rank ${rank}`, { anchor: 'end' }),
      ...Array.from({ length: query + 1 }, (_, key) => {
        const [x, y] = [LEFT + key * size, TOP + query * size];
        const mine = { ...LOOKS[rank], 'stroke-width': 0.8, 'data-key': `pair-${query}-${key}`, 'data-thing': `rank-${rank}` };
        return key < query ? svg('rect', { x, y, width: size - 1, height: size - 1, ...mine })
          : svg('path', { d: `M${x} ${y} L${x + size - 1} ${y + size - 1} H${x} Z`, ...mine });
      })]);
  }

  yaie.controlled('divided', {
    plays: 'way',
    controls: () => [{ name: 'way', label: 'pieces', options: WAYS, value: 'order' }],
    draw(stage, { way }) {
      const width = room(stage), narrow = isNarrow(stage), owners = around.owners(way, RANKS, PIECES), work = around.causal(owners, RANKS);
      const most = Math.max(...work), side = Math.min(300, width - LEFT - 8);
      const [left, top] = narrow ? [LEFT, TOP + side + GAP] : [LEFT + side + GAP + 50, TOP + 60];
      const room_ = width - left - 44, height = narrow ? top + RANKS * 30 : TOP + side + 6;
      const said = `Pieces ${WAYS.find(([name]) => name === way)[1]}: the ranks have ${work.slice(0, -1).join(', ')} and ${work.at(-1)} units of work. `
        + `All wait for the busiest, so ${Math.round((100 * work.reduce((sum, one) => sum + one, 0)) / RANKS / most)}% of their time is used.`;
      stage.append(picture(width, height, said,
        text(LEFT, 14, 'keys, in 16 pieces →'), square(owners, side),
        work.map((units, rank) => [
          text(left - 6, top + rank * 30 + 15, `rank ${rank}`, { anchor: 'end' }),
          svg('rect', { x: left, y: top + rank * 30, width: (room_ * units) / 56, height: 22, ...LOOKS[rank], 'data-key': `work-${rank}`, 'data-thing': `rank-${rank}` }),
          text(left + (room_ * units) / 56 + 6, top + rank * 30 + 15, units, { bold: true, 'data-key': `units-${rank}` })])),
      legend(...LOOKS.map((look, rank) => [look, `rank ${rank}`])));
      return said;
    },
  });
})();
