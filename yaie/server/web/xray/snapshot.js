// A state as a `snapshot` record: what a recording that does not begin with an engine's first step begins with.

import { nodesOf, pathTo } from './tree-model.js';

const pairsOf = (counts) => [...counts].flatMap(([index, chunk]) =>
  [...chunk].map((count, offset) => [index * chunk.length + offset, count]).filter(([, count]) => count));

/** @param {import('./reduce.js').State} state */
export function snapshotOf(state) {
  const requests = [...state.requests.values()];
  return {
    kind: 'snapshot', n: state.n, t: state.t, partial: state.partial,
    requests: requests.map((each) => ({
      id: each.id, prompt_tokens: each.prompt, max_tokens: each.maxTokens, priority: each.priority,
      words: each.words, status: each.status, computed: each.computed, cached: each.cached,
      output_tokens: each.output, text: each.text, preemptions: each.preemptions,
      host_blocks: each.hostBlocks, ...(each.peek ? { peek: true } : {}),
    })),
    tables: Object.fromEntries(requests.filter(({ table }) => table.length).map(({ id, table }) => [id, table])),
    running: state.running, waiting: state.waiting, num_waiting: state.numWaiting,
    refs: pairsOf(state.refs),
    tree: nodesOf(state.tree).map(({ blocks }) => {
      const path = pathTo(state.tree, blocks.at(-1));
      return { path, existing: path.length - blocks.length, locks: state.tree.locks.get(blocks.at(-1)) ?? 0 };
    }),
    stats: state.stats,
  };
}
