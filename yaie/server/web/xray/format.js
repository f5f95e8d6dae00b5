// The one place that knows how a record is written. Every line of a stream, and of a recording, is one object:
//
//   header    v, model, block_size, num_blocks, num_host_blocks, token_budget, max_num_seqs, prefix_caching,
//             step_mode, parts [{lab, whose}]
//   snapshot  n, t, requests [{id, prompt_tokens, max_tokens, priority, words, status, computed, cached,
//             output_tokens, text, preemptions, host_blocks}], tables {id: [block]}, running [id], waiting [id],
//             num_waiting, refs [[block, count]], tree [{path, existing, locks}], stats, partial
//   step      n, t (seconds), merged (how many steps it stands for), new [{id, prompt_tokens, max_tokens, priority,
//             words, peek (the page asks what the next token would be)}], rows [{id, start, num_tokens, is_prefill, cached, drafts, out [token], text}],
//             running [id], waiting [id] (the front of the queue), num_waiting, preempted [[id, how]],
//             finished [[id, reason]], freed [id], tables [[id, column, block]], refs [[block, change]],
//             tree [[name, arguments, result]], stats {kv_usage, hit_rate, ttft {id: seconds}, threads and
//             threads_wanted (on a CPU that other programs keep busy)}
//
// `freed` tables are emptied before the entries of `tables` are set. A snapshot's node is its path of blocks, of which
// the first `existing` are its parent's; parents come first. A field that is missing has not changed or is empty.

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
export const isChunk = (row, merged = 1) =>
  Boolean(row.is_prefill) || row.num_tokens > merged + (row.drafts || 0);

/** Drafts of a row that were not accepted: what was computed for them does not count. */
export const numRejected = ({ drafts = 0, out = [] }, merged = 1) =>
  (drafts ? Math.max(0, drafts + merged - out.length) : 0);

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
