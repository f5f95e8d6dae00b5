// A radix tree: every node a strip of blocks, in the column where they stand in the prompt.
'use strict';

(() => {
  const { svg } = yaie;
  const CELL = 34, STRIP = 22, ROW = 56, LEFT = 12, WIDTH = 322;
  const small = 'font-size: 11px', letters = 'font-size: 12px';
  const column = (index) => LEFT + index * CELL;
  const visible = (text) => text.replaceAll(' ', '␣');

  /** The letters of one block. style: attributes of its box; gone: struck out. */
  function cell(index, y, text, style, gone) {
    const x = column(index) + 1, width = CELL - 2;
    return [
      svg('rect', { x, y, width, height: STRIP, rx: 2, stroke: 'var(--y-line)', ...style }),
      svg('text', { x: x + width / 2, y: y + 15, 'text-anchor': 'middle', style: letters }, visible(text)),
      gone ? svg('path', { d: `M${x} ${y + STRIP}l${width} -${STRIP}m-${width} 0l${width} ${STRIP}`,
        stroke: 'var(--y-red)', 'stroke-width': 2 }) : null,
    ];
  }

  /** The text that a call is about; its first blocks are in the tree. */
  function query(step, size) {
    const cells = step.text.flatMap((text, index) => cell(index, 18, text, index < step.matched
      ? { fill: 'var(--y-green-soft)', 'stroke-width': 1.5 }
      : { fill: 'none', 'stroke-dasharray': text.length < size ? '2 3' : '4 2' }));
    return svg('g', {}, svg('text', { x: LEFT, y: 12, style: `${letters}; font-weight: 600` }, step.call), cells);
  }

  function padlock(x, y) {
    return svg('g', { transform: `translate(${x} ${y})`, stroke: 'currentColor', 'stroke-width': 1.4 },
      svg('rect', { x: 0, y: 4, width: 9, height: 6, rx: 1, fill: 'currentColor' }),
      svg('path', { d: 'M2 4V2.5a2.5 2.5 0 0 1 5 0V4', fill: 'none' }));
  }

  function node({ at, texts, blocks, locks, used }, y, step) {
    const x = column(at) + 2;
    const label = `${locks ? `${locks} ${locks === 1 ? 'lock' : 'locks'}` : 'not locked'}, used ${used}`;
    // A label that would run out of the picture ends at its right edge instead.
    const begin = Math.max(LEFT, Math.min(x + (locks ? 14 : 0), WIDTH - 6.7 * label.length));
    return svg('g', {},
      locks ? padlock(begin - 14, y - 13) : null,
      svg('text', { x: begin, y: y - 4, style: small }, label),
      texts.flatMap((text, index) => cell(at + index, y, text, {
        fill: locks ? 'var(--y-blue-soft)' : 'var(--y-orange-soft)',
      }, (step.gone ?? []).includes(blocks[index]))),
      svg('rect', { x: x - 1, y, width: texts.length * CELL - 2, height: STRIP, rx: 2, fill: 'none',
        stroke: 'currentColor', 'stroke-width': 1.5 }),
      blocks.map((block, index) => {
        const isNew = (step.fresh ?? []).includes(block);
        return svg('text', { x: column(at + index) + CELL / 2, y: y + STRIP + 11, 'text-anchor': 'middle',
          style: isNew ? `${small}; font-weight: 700` : small }, isNew ? `+${block}` : block);
      }));
  }

  /** From where a parent ends, down to each child: children begin in the column after it. */
  function edges(nodes, top) {
    const bottom = (row) => top + row * ROW + STRIP;
    const parent = (row) => {
      for (let above = row - 1; above >= 0; above -= 1) {
        if (nodes[above].at + nodes[above].blocks.length === nodes[row].at) return bottom(above);
      }
      return top - 30; // the root
    };
    return nodes.map(({ at }, row) => svg('path', {
      d: `M${column(at) - 1} ${parent(row)}V${bottom(row) - STRIP / 2}h2`, fill: 'none', stroke: 'currentColor',
    }));
  }

  function inWords(step, nodes) {
    const told = nodes.map(({ at, texts, blocks, locks }) =>
      `“${texts.join('')}” in ${blocks.length} blocks from column ${at + 1} on, ${locks} locks`);
    const gone = step.gone?.length ? ` Evicted: blocks ${step.gone.join(', ')}.` : '';
    return `${nodes.length} nodes${told.length ? ': ' : ''}${told.join('; ')}.${gone}`;
  }

  yaie.stepped('radix-tree', {
    draw(stage, step, data) {
      const nodes = step.before ?? step.nodes;
      const top = 88, height = top + Math.max(1, nodes.length) * ROW;
      const summary = `${step.blocks} blocks in the tree, ${step.evictable} evictable`;
      stage.append(svg('svg', { viewBox: `0 0 ${WIDTH} ${height}`, role: 'img',
        'aria-label': inWords(step, nodes), style: 'max-width: 500px' },
        query(step, data.block_size),
        svg('circle', { cx: LEFT - 1, cy: top - 30, r: 4, fill: 'currentColor' }),
        svg('text', { x: LEFT + 8, y: top - 26, style: small }, 'root'),
        edges(nodes, top),
        nodes.map((each, row) => node(each, top + row * ROW, step)),
        svg('text', { x: LEFT, y: height - 2, style: small }, summary)));
    },
  });
})();
