// The one place that knows how a record is written: yaie/core/records.py describes it.

import { afterCalls, emptyTree, ROOT } from './tree-model.js';

/** The newest version of the format that this page reads. */
export const VERSION = 1;

/** A recorded call [name, arguments, result] by what the picture needs of it. */
function call([name, args, result]) {
  switch (name) {
    case 'match_prefix': return { name, blocks: result ?? [] };
    case 'insert': return { name, existing: result[0], blocks: result[1] };
    case 'split': return { name, end: result[0] ?? ROOT };
    case 'lock': case 'unlock': return { name, end: args[0] ?? ROOT };
    case 'evict': return { name, blocks: result ?? [] };
    default: return { name };
  }
}

/** The calls of the radix tree's contract that a step made, in order. */
export const callsOf = (record) => (record.tree ?? []).map(call);

/** Whether a row computes more than the token that it goes on with and its drafts: a prompt, or one again. */
export const isChunk = (row) => Boolean(row.is_prefill) || row.num_tokens > 1 + (row.drafts || 0);

/** The tree of a snapshot: nodes [{blocks, locks}], parents first, each with the path above it. */
export function treeOf({ tree = [] }) {
  let known = emptyTree();
  for (const { path, existing = 0, locks = 0 } of tree) {
    const calls = [{ name: 'insert', blocks: path, existing }];
    for (let lock = 0; lock < locks; lock += 1) calls.push({ name: 'lock', end: path.at(-1) });
    known = afterCalls(known, calls).tree;
  }
  return known;
}
