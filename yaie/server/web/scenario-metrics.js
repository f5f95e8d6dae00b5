// The counters of /metrics that scenarios tell about.

const NAMES = {
  queries: 'vllm:prefix_cache_queries_total', hits: 'vllm:prefix_cache_hits_total',
  preemptions: 'vllm:num_preemptions_total', prompt: 'vllm:prompt_tokens_total',
  output: 'vllm:generation_tokens_total', steps: 'vllm:iteration_tokens_total_count',
  running: 'vllm:num_requests_running', waiting: 'vllm:num_requests_waiting',
};

/** Sums over labels. @param {string} text @returns {Record<string, number>} */
export function counted(text) {
  const sums = Object.fromEntries(Object.keys(NAMES).map((name) => [name, 0]));
  for (const line of text.split('\n')) {
    const [, series, value] = line.match(/^([\w:]+)(?:\{.*\})? (\S+)/) ?? [];
    const name = Object.keys(NAMES).find((each) => NAMES[each] === series);
    if (name) sums[name] += Number(value);
  }
  return sums;
}

export const difference = (before, after) =>
  Object.fromEntries(Object.keys(before).map((name) => [name, after[name] - before[name]]));
