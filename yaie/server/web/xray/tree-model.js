// The radix tree as its recorded calls show it. Its nodes are opaque, but every block stands in it once: so a
// node is named by the block that it ends with, and the tree is known by each block's predecessor.

export const ROOT = -1;

/**
 * @typedef {object} Tree
 * @property {Map<number, number>} parent the block before each block; ROOT before the first
 * @property {Set<number>} ends blocks with which a node ends
 * @property {Map<number, number>} locks how often the node that ends with a block is locked itself
 */

/** @returns {Tree} */
export const emptyTree = () => ({ parent: new Map(), ends: new Set(), locks: new Map() });

const copied = (tree) =>
  ({ parent: new Map(tree.parent), ends: new Set(tree.ends), locks: new Map(tree.locks) });

/** A node ends with `block` from now on. Returns whether that cut one in two. */
function cut(tree, block) {
  if (block === ROOT || block == null || tree.ends.has(block) || !tree.parent.has(block)) return false;
  tree.ends.add(block);
  return true;
}

function insert(tree, path, fresh) {
  const known = path.length - fresh.length;
  path.forEach((block, index) => {
    if (index >= known) tree.parent.set(block, index ? path[index - 1] : ROOT);
  });
  if (known) cut(tree, path[known - 1]);
  if (path.length) tree.ends.add(path.at(-1));
}

function evict(tree, blocks) {
  return blocks.map((block) => {
    const before = tree.parent.get(block) ?? ROOT;
    tree.parent.delete(block);
    tree.ends.delete(block);
    tree.locks.delete(block);
    return [block, before];
  }).map(([block, before]) => {
    // What is left of a node that lost its end ends one block earlier.
    if (tree.parent.has(before)) tree.ends.add(before);
    return [block, before];
  });
}

function addLock(tree, block, change) {
  if (block === ROOT) return;
  const count = (tree.locks.get(block) ?? 0) + change;
  if (count > 0) tree.locks.set(block, count);
  else tree.locks.delete(block);
}

/**
 * What a step's calls make of the tree, and what happened, for the picture. The tree given stays as it is.
 * @param {Tree} tree
 * @param {{name: string, blocks?: number[], existing?: number, end?: number}[]} calls
 * @returns {{tree: Tree, events: {kind: string, blocks: number[], fresh?: number[], before?: number[]}[]}}
 */
export function afterCalls(tree, calls) {
  if (!calls.length) return { tree, events: [] };
  const next = copied(tree);
  const events = [];
  for (const { name, blocks = [], existing = 0, end = ROOT } of calls) {
    if (name === 'match_prefix') {
      const isSplit = blocks.length > 0 && cut(next, blocks.at(-1));
      events.push({ kind: 'match', blocks });
      if (isSplit) events.push({ kind: 'split', blocks: [blocks.at(-1)] });
    } else if (name === 'insert') {
      const isSplit = existing > 0 && cut(next, blocks[existing - 1]);
      const fresh = blocks.slice(existing);
      insert(next, blocks, fresh);
      if (isSplit) events.push({ kind: 'split', blocks: [blocks[existing - 1]] });
      events.push({ kind: 'insert', blocks, fresh });
    } else if (name === 'split') {
      if (cut(next, end)) events.push({ kind: 'split', blocks: [end] });
    } else if (name === 'lock' || name === 'unlock') {
      addLock(next, end, name === 'lock' ? 1 : -1);
      events.push({ kind: name, blocks: end === ROOT ? [] : [end] });
    } else if (name === 'evict') {
      const gone = evict(next, blocks);
      events.push({ kind: 'evict', blocks, before: gone.map(([, before]) => before) });
    }
  }
  return { tree: next, events };
}

const derived = new WeakMap();

/**
 * The nodes, parents before children, children in the order in which they came.
 * locks: of the node and of all below it, as the contract counts them.
 * @param {Tree} tree
 * @returns {{blocks: number[], parent: number, at: number, locks: number, children: number[]}[]}
 */
export function nodesOf(tree) {
  if (derived.has(tree)) return derived.get(tree);
  const below = new Map();
  for (const [block, before] of tree.parent) {
    if (!below.has(before)) below.set(before, []);
    below.get(before).push(block);
  }
  const nodes = [];
  const waiting = [...(below.get(ROOT) ?? [])].reverse().map((block) => ({ block, parent: ROOT, at: 0 }));
  while (waiting.length) {
    const { block, parent, at } = waiting.pop();
    const blocks = [block];
    let next = below.get(block) ?? [];
    while (next.length === 1 && !tree.ends.has(blocks.at(-1))) {
      blocks.push(next[0]);
      next = below.get(next[0]) ?? [];
    }
    const index = nodes.push({ blocks, parent, at, locks: 0, children: [] }) - 1;
    if (parent !== ROOT) nodes[parent].children.push(index);
    for (const child of [...next].reverse()) {
      waiting.push({ block: child, parent: index, at: at + blocks.length });
    }
  }
  for (let index = nodes.length - 1; index >= 0; index -= 1) {
    const node = nodes[index];
    node.locks += tree.locks.get(node.blocks.at(-1)) ?? 0;
    if (node.parent !== ROOT) nodes[node.parent].locks += node.locks;
  }
  derived.set(tree, nodes);
  return nodes;
}

/** The blocks from the root down to `block`. */
export function pathTo(tree, block) {
  const path = [];
  for (let at = block; tree.parent.has(at); at = tree.parent.get(at)) path.unshift(at);
  return path;
}

/** How many blocks stand in nodes that nobody has locked. */
export const numEvictable = (tree) =>
  nodesOf(tree).reduce((sum, node) => sum + (node.locks ? 0 : node.blocks.length), 0);
