// Whose each block is, from block tables and tree.

import { countOf } from './counts.js';

const known = new WeakMap();

/** Block -> the requests in whose tables it stands, in their order. */
export function ownersOf(state) {
  if (known.has(state.requests)) return known.get(state.requests);
  const owners = new Map();
  for (const { id, table } of state.requests.values()) {
    for (const block of table) {
      if (owners.has(block)) owners.get(block).push(id);
      else owners.set(block, [id]);
    }
  }
  known.set(state.requests, owners);
  return owners;
}

/**
 * What a block is: `free`; `cached`, in the tree alone; `owned` by one request; `shared` by several; `held`, which
 * has a reference that nobody explains.
 */
export function kindOf(state, block) {
  const owners = ownersOf(state).get(block);
  if (owners) return owners.length > 1 ? 'shared' : 'owned';
  if (state.tree.parent.has(block)) return 'cached';
  return countOf(state.refs, block) > 0 ? 'held' : 'free';
}

/** How many blocks there are of each kind. */
export function tally(state) {
  const counts = { free: 0, cached: 0, owned: 0, shared: 0, held: 0 };
  const { num_blocks: size = 0 } = state.header;
  for (let block = 0; block < size; block += 1) counts[kindOf(state, block)] += 1;
  return counts;
}

/** A block in words. letterOf: a request's letter. */
export function describe(state, block, letterOf) {
  const owners = ownersOf(state).get(block) ?? [];
  const refs = countOf(state.refs, block);
  const inTree = state.tree.parent.has(block);
  const where = owners.map((id) => `${letterOf(id)}’s table at column ${state.requests.get(id).table.indexOf(block)}`);
  if (inTree) where.push('the tree');
  if (!where.length) return `Block ${block}: ${refs ? `${refs} references` : 'free'}.`;
  const times = refs === 1 ? '1 reference' : `${refs} references`;
  return `Block ${block}: ${times}. It is in ${where.join(', ')}.`;
}
