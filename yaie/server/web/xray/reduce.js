// From a state and a record to the next state. Pure: the state that goes in stays as it is, parts that a record does
// not change are shared, so a state can be kept for as long as somebody may want to go back to it.

import { afterCalls, emptyTree } from './tree-model.js';
import { callsOf, numRejected, treeOf } from './format.js';
import { noCounts, withDeltas } from './counts.js';

const KEPT_ENDED = 64;

/**
 * @typedef {object} RequestState
 * @property {string} id
 * @property {string} status waiting, running, preempted, swapped or finished
 * @property {string} words how its prompt begins
 * @property {number} prompt prompt tokens
 * @property {number} maxTokens
 * @property {number} priority
 * @property {boolean} peek whether the page asks what the next token would be
 * @property {number} computed leading tokens with K and V
 * @property {number} cached prompt tokens taken from the prefix cache
 * @property {number} output tokens drawn
 * @property {string} text the end of its answer
 * @property {number[]} table its blocks
 * @property {number} hostBlocks its blocks in the host pool, while it is swapped out
 * @property {number} preemptions
 * @property {?number} ttft seconds to its first token
 * @property {?string} reason why it ended
 *
 * @typedef {object} State
 * @property {object} header
 * @property {number} n the last step's number
 * @property {Map<string, RequestState>} requests in the order in which they came
 * @property {string[]} running
 * @property {string[]} waiting the front of the queue
 * @property {number} numWaiting all of it
 * @property {import('./counts.js').Counts} refs references of each block
 * @property {import('./tree-model.js').Tree} tree
 * @property {object[]} events what the last step did to the tree
 * @property {object} stats
 * @property {?object} record the last step's
 * @property {boolean} partial whether the tree was there before anybody watched
 */

/** @returns {State} an engine that has done nothing */
export function initial(header) {
  return {
    header, n: 0, t: 0, requests: new Map(), running: [], waiting: [], numWaiting: 0, refs: noCounts,
    tree: emptyTree(), events: [], stats: {}, record: null, partial: false, evicted: 0, preemptions: 0,
  };
}

const newRequest = ({ id, prompt_tokens: prompt = 0, max_tokens: maxTokens = 0, priority = 0, words = '', peek = false }) => ({
  id, status: 'waiting', words, prompt, maxTokens, priority, peek,
  computed: 0, cached: 0, output: 0, text: '', table: [], hostBlocks: 0, preemptions: 0, ttft: null, reason: null,
});

/** A state in the middle of things. */
export function fromSnapshot(header, record) {
  const state = initial(header);
  for (const each of record.requests ?? []) {
    state.requests.set(each.id, {
      ...newRequest(each), status: each.status ?? 'waiting', computed: each.computed ?? 0,
      cached: each.cached ?? 0, output: each.output_tokens ?? 0, text: each.text ?? '',
      table: [...(record.tables?.[each.id] ?? [])], preemptions: each.preemptions ?? 0, hostBlocks: each.host_blocks ?? 0,
    });
  }
  return {
    ...state, n: record.n ?? 0, t: record.t ?? 0, running: record.running ?? [], waiting: record.waiting ?? [],
    numWaiting: record.num_waiting ?? record.waiting?.length ?? 0, refs: withDeltas(noCounts, record.refs ?? []),
    tree: treeOf(record), stats: record.stats ?? {}, partial: Boolean(record.partial),
  };
}

/** Changes a request of a draft of the requests; what the record does not know is made up as it is met. */
function change(requests, id, made) {
  const old = requests.get(id) ?? newRequest({ id });
  requests.set(id, { ...old, ...made(old) });
}

function applyRows(requests, rows, merged) {
  for (const row of rows) {
    change(requests, row.id, (old) => ({
      status: 'running', hostBlocks: 0,
      cached: old.computed === 0 && row.start > 0 && !old.preemptions ? row.start : old.cached,
      computed: row.start + row.num_tokens - numRejected(row, merged),
      output: old.output + (row.out?.length ?? 0),
      text: `${old.text}${row.text ?? ''}`.slice(-400),
    }));
  }
}

function applyTables(requests, record) {
  for (const id of record.freed ?? []) {
    if (requests.has(id)) change(requests, id, () => ({ table: [] }));
  }
  const touched = new Map();
  for (const [id, column, block] of record.tables ?? []) {
    if (!touched.has(id)) touched.set(id, [...(requests.get(id)?.table ?? [])]);
    touched.get(id)[column] = block;
  }
  for (const [id, table] of touched) change(requests, id, () => ({ table }));
}

function applyEnds(requests, record, before) {
  for (const [id, how] of record.preempted ?? []) {
    change(requests, id, (old) => ({
      status: how === 'swap' ? 'swapped' : 'preempted', preemptions: old.preemptions + 1, table: [],
      computed: how === 'swap' ? old.computed : 0,
      hostBlocks: how === 'swap' ? before.get(id)?.table.length ?? 0 : 0,
    }));
  }
  for (const [id, reason] of record.finished ?? []) {
    if (requests.has(id)) change(requests, id, () => ({ status: 'finished', reason, table: [], hostBlocks: 0 }));
  }
  const ended = [...requests.values()].filter(({ status }) => status === 'finished');
  for (const { id } of ended.slice(0, Math.max(0, ended.length - KEPT_ENDED))) requests.delete(id);
}

/** @param {State} state @param {object} record @returns {State} */
export function reduce(state, record) {
  if (record.kind === 'header') return initial(record);
  if (record.kind === 'snapshot') return fromSnapshot(state.header, record);
  if (record.kind !== 'step') return state; // of a later version: what we do not know changes nothing
  const requests = new Map(state.requests);
  for (const each of record.new ?? []) requests.set(each.id, newRequest(each));
  applyRows(requests, record.rows ?? [], record.merged);
  applyTables(requests, record);
  applyEnds(requests, record, state.requests);
  for (const [id, seconds] of Object.entries(record.stats?.ttft ?? {})) {
    if (requests.has(id)) change(requests, id, () => ({ ttft: seconds }));
  }
  const { tree, events } = afterCalls(state.tree, callsOf(record));
  const evicted = events.reduce((sum, { kind, blocks }) => sum + (kind === 'evict' ? blocks.length : 0), 0);
  return {
    ...state, n: record.n, t: record.t, requests, running: record.running ?? state.running,
    waiting: record.waiting ?? state.waiting,
    numWaiting: record.num_waiting ?? record.waiting?.length ?? state.numWaiting,
    refs: withDeltas(state.refs, record.refs ?? []), tree, events, record,
    stats: { ...state.stats, ...record.stats }, evicted: state.evicted + evicted,
    preemptions: state.preemptions + (record.preempted?.length ?? 0),
  };
}
