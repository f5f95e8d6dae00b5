// The four loads: what each sends, when it can, and how it tells what came of it.

const many = (count, make) => Promise.all(Array.from({ length: count }, (_, index) => make(index)));
const seconds = (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(1)} s`);
const median = (values) => [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)];
const plural = (count, word) => `${count.toLocaleString('en')} ${word}${count === 1 ? '' : 's'}`;

/** A word of this run: what earlier runs left in the tree must not help. */
const fresh = () => Math.random().toString(36).slice(2, 8);

const MOST = 64;

/** As many requests, as long as it takes: their prompts nearly fill the pool, their answers do not fit. */
export function overload({ numBlocks, blockSize, longest, seats }) {
  const most = Math.min(MOST, seats);
  for (let requests = Math.min(6, most); requests <= most; requests += 1) {
    const blocks = Math.floor((0.95 * numBlocks) / requests);
    // In a large pool a smaller share is enough, and takes less time.
    const answer = Math.ceil(Math.min(0.26 * numBlocks, 40 + 0.06 * numBlocks) / requests) + 1;
    const room = Math.floor(longest / blockSize);
    if (blocks >= 1 && blocks + answer <= Math.min(room, numBlocks - 1)) {
      return { requests, prompt: blocks * blockSize - 4, answer: answer * blockSize };
    }
  }
  return null;
}

export const LOADS = [
  {
    name: 'shared',
    label: 'Shared system prompt',
    look: 'Eight requests begin with the same long instructions. Look at the radix tree and the block pool: only the first '
      + 'request computes them, the others find them in the tree and share their blocks.',
    hinders: ({ caching }) => (caching === false ? 'this engine keeps no prefixes; start it without --no-prefix-caching.' : null),
    async run({ ask, tokens, later }, { longest, numBlocks, blockSize }) {
      const length = Math.min(320, Math.floor(longest / 3), Math.floor((numBlocks * blockSize) / 4));
      const shared = await tokens(`Rule ${fresh()}: answer shortly and kindly, rule`, length);
      const own = await many(8, (index) => tokens(`Question ${index + 1} ${fresh()}`, 12));
      const prompts = own.map((each) => [...shared, ...each]);
      const first = ask({ prompt: prompts.slice(0, 1), max_tokens: 90 });
      await later(250);
      return Promise.all([first, ask({ prompt: prompts.slice(1), max_tokens: 60 })]);
    },
    tell: ({ hits, queries }) => `of ${plural(queries, 'prompt token')}, ${hits.toLocaleString('en')} came from the tree `
      + `(${Math.round((100 * hits) / Math.max(1, queries))}%); they were not computed again.`,
  },
  {
    name: 'long',
    label: 'Long prompt among short ones',
    look: 'Six short requests decode while a long prompt arrives. Look at the timeline: the long prompt is cut into chunks that '
      + 'fit the step’s token budget, and the others go on decoding beside every chunk.',
    hinders: ({ longest, budget }) => (longest - 16 < 2 * budget
      ? `the longest prompt (${longest} tokens) is less than two chunks; start the engine with a smaller --token-budget.` : null),
    async run({ ask, tokens, later }, { longest, budget, numBlocks, blockSize }) {
      const length = Math.min(longest - 16, 4 * budget, Math.floor(0.5 * numBlocks * blockSize));
      const long = await tokens(`Chapter ${fresh()}, the story so far, part`, length);
      const short = await many(6, (index) => tokens(`Short ${index + 1} ${fresh()}`, 10));
      const others = ask({ prompt: short, max_tokens: 200 });
      await later(300);
      const [first] = await ask({ prompt: [long], max_tokens: 8 });
      await others;
      return { length, first };
    },
    tell: (_, { length, first }, { budget }) => `${plural(length, 'prompt token')} took at least `
      + `${plural(Math.ceil(length / budget), 'step')} of at most ${budget}; the first token came after ${seconds(first)}, `
      + 'and the short answers did not wait for it.',
  },
  {
    name: 'blocks',
    label: 'More requests than blocks',
    look: 'The prompts nearly fill the block pool, and the answers need more. Look at the queues: when no block is free, the youngest '
      + 'request gives up its blocks, waits, and computes them again later.',
    hinders: (facts) => (overload(facts) ? null
      : `${MOST} of the longest requests do not fill this pool (${facts.numBlocks} blocks); start the engine with a smaller --num-blocks.`),
    async run({ ask, tokens }, facts) {
      const { requests, prompt, answer } = overload(facts);
      const base = await tokens(`Filler ${fresh()} of the pool, line`, prompt);
      const heads = await many(requests, (index) => tokens(`${index + 1} ${fresh()}`, 4));
      const ids = heads.map((head) => [...head, ...base].slice(0, prompt));
      return ask({ prompt: ids, max_tokens: answer });
    },
    tell: ({ preemptions }, times) => (preemptions
      ? `${plural(preemptions, 'preemption')} among ${times.length} requests; all were answered in the end.`
      : `no preemption this time among ${times.length} requests.`),
  },
  {
    name: 'priorities',
    label: 'Priorities',
    look: 'Eight long prompts are queued, then two short urgent requests. Look at the queue: the urgent ones are moved to its front '
      + 'and overtake the others.',
    hinders: ({ policy }) => (policy === 'priority' ? null : 'the engine serves in order of arrival; start it with --policy priority.'),
    async run({ ask, tokens, later }, { longest, budget, numBlocks, blockSize }) {
      const length = Math.min(longest - 32, 2 * budget, Math.floor((numBlocks * blockSize) / 10));
      const long = await tokens(`Report ${fresh()}, page`, length);
      const heads = await many(8, (index) => tokens(`${index + 1} ${fresh()}`, 4));
      const urgent = await many(2, (index) => tokens(`Urgent ${index + 1} ${fresh()}`, 10));
      const others = ask({ prompt: heads.map((head) => [...head, ...long].slice(0, length)), max_tokens: 16, priority: 10 });
      await later(60);
      const first = await ask({ prompt: urgent, max_tokens: 16, priority: 0 });
      return { first, others: await others };
    },
    tell: (_, { first, others }) => `the urgent ones had their first token after ${seconds(median(first))}, `
      + `the others after ${seconds(median(others))} (medians).`,
  },
];
