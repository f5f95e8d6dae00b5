"""Step records: what an engine tells those who watch it, one JSON object a line.

A recording is a file of such lines; the event stream sends the same lines as they come about. Lines that
a reader does not know, and keys in them, are passed over.

header      what does not change. First in a recording and in a stream.
    v, model, block_size, num_blocks, num_host_blocks, token_budget, max_num_seqs, policy, watermark,
    chunked_prefill, preemption, prefix_caching, speculate, step_mode,
    parts: [{lab, whose: "yours" | "reference"}]
snapshot    the state where the records begin in the middle, or begin anew.
    n, t, requests: [{id, prompt_tokens, max_tokens, priority, words, status, computed, cached,
        output_tokens, text, preemptions}], running, waiting, num_waiting
    tables: {id: [block, ...]}; refs: [[block, references], ...], those that are not 0
    tree: [{path, existing, locks}], nodes, parents first: the blocks from the root to the node's end,
        how many of them belong to those above, how often it is locked itself
    partial: whether the tree holds more, which was filed before anybody watched; stats
step        what one step did; `merged` steps, where it holds more than one.
    n: the number of the (last) step. t: seconds since the engine began. ms: what it took, or they did.
    new: [{id, prompt_tokens, max_tokens, priority, words, peek}], in the order in which they came; peek:
        the page asks what the next token would be, left out if not
    rows: [{id, start, num_tokens, cached, is_prefill, drafts, out, text}]: tokens [start, start +
        num_tokens) of a request were computed; `out` was drawn
    finished: [[id, reason]]; preempted: [[id, "swap" | "recompute"]]
    running: ids; waiting: ids of the first of the queue; num_waiting: all that wait
    freed: ids whose tables are gone or begin anew, before `tables`: [[id, column, block]], new entries
    moves: {copies, swap_out, swap_in}: [[from, to]], left out if there are none
    refs: [[block, change]]
    tree: [[name, arguments, result]], calls of the RadixTree contract in order: match_prefix [number of
        tokens, most blocks] -> blocks; insert [number of tokens, blocks] -> [there already, path]; lock
        [end], unlock [end]; evict [blocks wanted] -> blocks. `end`: the last block on a node's path, -1
        for the root: nodes are opaque, but each block stands in one alone.
    stats: {kv_usage, hit_rate, ttft: {id: seconds}}; full_kv_usage and windowed_kv_usage, if some layers
        have a window: kv_usage is then the higher of the two
pace        whether the engine waits for each step to be asked for: held. Not part of a recording.

The book's figures are recorded by `book/tools/traces` in shapes of their own, one for each idea; where
one shows the whole engine, it is made from a recording.
"""

from typing import Any

VERSION = 1
ROOT = -1

Record = dict[str, Any]
