// A radix tree: every node a strip of blocks, in the column where they stand in the prompt.
'use strict';

(() => {
  const { svg } = yaie;
  const { room, picture, text } = yaie.stage;
  const [STRIP, ROW, LEFT, TOP] = [24, 48, 12, 84];
  const visible = (words) => words.replaceAll(' ', '␣');

  /** Columns that the story needs, and how wide each is in a stage. */
  function measure(stage, data) {
    const ends = data.steps.flatMap((step) => [step.text.length,
      ...[...step.nodes, ...(step.before ?? [])].map(({ at, blocks }) => at + blocks.length)]);
    const columns = Math.max(...ends);
    const cell = Math.max(30, Math.min(48, Math.floor((room(stage) - 2 * LEFT) / columns)));
    return { cell, width: 2 * LEFT + columns * cell, column: (index) => LEFT + index * cell };
  }

  /** The letters of one block. style: attributes of its box; gone: struck out. */
  function letters(place, index, y, words, style, gone) {
    const x = place.column(index) + 1, width = place.cell - 2;
    return [
      svg('rect', { x, y, width, height: STRIP, rx: 2, stroke: 'var(--y-line)', ...style }),
      text(x + width / 2, y + 16, visible(words), { anchor: 'middle' }),
      gone ? svg('path', { d: `M${x} ${y + STRIP}l${width} -${STRIP}m-${width} 0l${width} ${STRIP}`,
        stroke: 'var(--y-red)', 'stroke-width': 2 }) : null,
    ];
  }

  /** The text that a call is about; its first blocks are in the tree. */
  function query(place, step, size) {
    const inTree = step.matched ?? 0;
    const cells = step.text.map((words, index) => svg('g', {
      'data-key': `text-${index}-${words}`, 'data-thing': index < inTree ? `call column-${index}` : 'call',
    }, letters(place, index, 18, words, index < inTree
      ? { fill: 'var(--y-green-soft)', 'stroke-width': 1.5 }
      : { fill: 'none', 'stroke-dasharray': words.length < size ? '2 3' : '4 2' })));
    return [text(LEFT, 12, step.call, { bold: true, 'data-key': `call-${step.call}`, 'data-thing': 'call' }), ...cells];
  }

  function padlock(x, y, key) {
    return svg('g', { transform: `translate(${x} ${y})`, stroke: 'currentColor', 'stroke-width': 1.4, 'data-key': key, 'data-thing': 'lock' },
      svg('rect', { x: 0, y: 4, width: 9, height: 6, rx: 1, fill: 'currentColor' }),
      svg('path', { d: 'M2 4V2.5a2.5 2.5 0 0 1 5 0V4', fill: 'none' }));
  }

  // A node keeps its identity by its first block: where it is split, the upper part stays and the lower one is new.
  function node(place, { at, texts, blocks, locks, used }, y, step) {
    const x = place.column(at) + 2;
    const label = `${locks ? `${locks} ${locks === 1 ? 'lock' : 'locks'}` : 'not locked'}, used ${used}`;
    // A label that would run out of the picture ends at its right edge instead.
    const begin = Math.max(LEFT, Math.min(x + (locks ? 14 : 0), place.width - 7.4 * label.length));
    const me = blocks[0];
    return [
      locks ? padlock(begin - 14, y - 13, `lock-${me}`) : null,
      text(begin, y - 4, label, { 'data-key': `label-${me}`, 'data-thing': locks ? 'lock' : 'evict' }),
      ...texts.map((words, index) => {
        const block = blocks[index], isNew = (step.fresh ?? []).includes(block);
        const inCall = index + at < (step.matched ?? 0) && step.text[index + at] === words ? ` column-${at + index}` : '';
        return svg('g', { 'data-key': `block-${block}`, 'data-thing': `block-${block}${inCall}` },
          letters(place, at + index, y, words, { fill: locks ? 'var(--y-blue-soft)' : 'var(--y-orange-soft)' },
            (step.gone ?? []).includes(block)),
          text(place.column(at + index) + place.cell / 2, y + STRIP + 12, isNew ? `+${block}` : block, { anchor: 'middle', bold: isNew }));
      }),
      svg('rect', { x: x - 1, y, width: texts.length * place.cell - 2, height: STRIP, rx: 2, fill: 'none',
        stroke: 'currentColor', 'stroke-width': 1.5, 'data-key': `node-${me}`, 'data-thing': 'node' }),
    ];
  }

  /** From where a parent ends, down to each child: children begin in the column after it. */
  function edges(place, nodes) {
    const bottom = (row) => TOP + row * ROW + STRIP;
    const parent = (row) => {
      for (let above = row - 1; above >= 0; above -= 1) {
        if (nodes[above].at + nodes[above].blocks.length === nodes[row].at) return bottom(above);
      }
      return TOP - 30; // the root
    };
    return nodes.map(({ at, blocks }, row) => svg('path', { 'data-key': `edge-${blocks[0]}`,
      d: `M${place.column(at) - 1} ${parent(row)}V${bottom(row) - STRIP / 2}h2`, fill: 'none', stroke: 'currentColor',
    }));
  }

  function inWords(step, nodes) {
    const told = nodes.map(({ at, texts, blocks, locks }) =>
      `“${texts.join('')}” in ${blocks.length} blocks from column ${at + 1} on, ${locks} locks`);
    const gone = step.gone?.length ? ` Evicted: blocks ${step.gone.join(', ')}.` : '';
    return `${nodes.length} nodes${told.length ? ': ' : ''}${told.join('; ')}.${gone}`;
  }

  yaie.stepped('radix-tree', {
    settings: radixOwn.settings,
    shown: (figure, step) => figure.sync(step),
    draw(stage, step, data) {
      const nodes = step.before ?? step.nodes;
      const place = measure(stage, data);
      const height = TOP + Math.max(1, nodes.length) * ROW + 4;
      const summary = `${step.blocks} blocks in the tree, ${step.evictable} evictable`;
      stage.append(picture(place.width, height, inWords(step, nodes),
        query(place, step, data.block_size),
        svg('circle', { cx: LEFT - 1, cy: TOP - 30, r: 4, fill: 'currentColor' }),
        text(LEFT + 8, TOP - 26, 'root'),
        edges(place, nodes),
        nodes.flatMap((each, row) => node(place, each, TOP + row * ROW, step)),
        text(LEFT, height - 3, summary, { 'data-key': 'summary', 'data-thing': 'evict' })));
    },
  });
})();
