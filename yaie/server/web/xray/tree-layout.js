// Where the nodes of the tree are drawn: a row for each node, below its parent, begun in the column where it begins
// in a prompt. Long nodes are drawn shorter, and of many rows only those that matter now.

import { nodesOf } from './tree-model.js';

export const MOST_ROWS = 40, LONGEST = 10;

/** Blocks of a node as they are drawn: first ones, a gap, last ones. */
export function shortened(blocks, most = LONGEST) {
  if (blocks.length <= most) return { cells: blocks, gap: 0, after: blocks.length };
  const front = Math.ceil((most - 1) / 2), back = most - 1 - front;
  return { cells: [...blocks.slice(0, front), null, ...blocks.slice(-back)], gap: blocks.length - front - back, after: front };
}

/**
 * @param {import('./tree-model.js').Tree} tree @param {Set<number>} touched blocks that the step's calls name
 * @returns {{rows: object[], hidden: number, columns: number}}
 */
export function layout(tree, touched) {
  const nodes = nodesOf(tree);
  let chosen = new Set(nodes.keys());
  if (nodes.length > MOST_ROWS) {
    const weight = (node, index) => (node.blocks.some((block) => touched.has(block)) ? 1e6 : 0)
      + (node.locks ? 1e4 + node.locks : 0) + node.blocks.length - index / nodes.length;
    const best = [...nodes.keys()].sort((one, other) => weight(nodes[other], other) - weight(nodes[one], one));
    chosen = new Set();
    for (const index of best) {
      const path = [];
      for (let at = index; at !== -1 && !chosen.has(at); at = nodes[at].parent) path.push(at);
      if (chosen.size + path.length > MOST_ROWS) break;
      path.forEach((at) => chosen.add(at));
    }
  }
  const rows = [];
  const rowOf = new Map();
  for (const [index, node] of nodes.entries()) {
    if (!chosen.has(index)) continue;
    const parent = node.parent === -1 ? null : rowOf.get(node.parent);
    const { cells, gap, after } = shortened(node.blocks);
    const column = parent ? parent.column + parent.cells.length : 0;
    const row = { ...node, cells, gap, after, column, above: parent, y: rows.length };
    rowOf.set(index, row);
    rows.push(row);
  }
  const columns = rows.reduce((most, row) => Math.max(most, row.column + row.cells.length), 1);
  return { rows, hidden: nodes.length - rows.length, columns };
}
