// What the figures of the chapters without a lab reckon with. Every function takes plain numbers and is tested by hand-made cases.
'use strict';

const around = (() => {
  /** Experts that a step touches: tokens choose k of E each, alike and independently. Weights read, and traffic. */
  function experts({ layers, hidden, ffn, count, chosen, shared }, { tokens, ranks, width }) {
    const touched = count * (1 - (1 - chosen / count) ** tokens);
    const one = 3 * hidden * ffn * width;
    // A rank holds count / ranks experts; a token misses all of them with this probability.
    const own = count / ranks;
    let missed = 1;
    for (let i = 0; i < chosen; i += 1) missed *= Math.max(0, (count - own - i) / (count - i));
    const remote = (ranks - 1) * (1 - missed);
    return {
      touched, one,
      read: layers * (touched + shared) * one,
      all: layers * (count + shared) * one,
      work: layers * (chosen + shared) * one,
      each: (tokens * chosen) / touched,
      remote,
      sent: layers * tokens * remote * hidden * (1 + 2), // FP8 on the way there, bfloat16 back
    };
  }

  /** A number from 0 to 1 for a whole number, always the same (mulberry32). */
  function random(seed) {
    let mixed = (seed * 0x9e3779b9 + 0x6d2b79f5) | 0;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** One draw of what the formula expects: how many rows each expert gets, and which experts the last token chose. */
  function draws({ count, chosen }, tokens) {
    const rows = Array(count).fill(0);
    let last = [], seed = 0;
    for (let token = 0; token < tokens; token += 1) {
      const mine = new Set();
      while (mine.size < chosen) mine.add(Math.floor(random(seed += 1) * count));
      last = [...mine];
      last.forEach((expert) => { rows[expert] += 1; });
    }
    return { rows, last };
  }

  /** What a layer reads for one new token behind `context` others, and its FLOPs for a byte. */
  const kinds = {
    heads: ({ heads, kvHeads, dim }, context) => (
      { bytes: 2 * kvHeads * dim * 2 * context, flops: 4 * heads * dim * context }),
    latent: ({ heads, latent, rotary }, context) => (
      { bytes: (latent + rotary) * 2 * context, flops: 2 * heads * (2 * latent + rotary) * context }),
    // A cheap score for every token, then full attention to the best of them.
    sparse: ({ heads, latent, rotary, most, indexHeads, indexDim }, context) => {
      const kept = Math.min(most, context);
      return { bytes: (latent + rotary) * 2 * kept + indexDim * context,
        flops: 2 * heads * (2 * latent + rotary) * kept + 2 * indexHeads * indexDim * context };
    },
    // A vector, key and value at once, for each group of tokens: the best of them or all, and those of the last `near` tokens.
    groups: ({ heads, dim, group, most = Infinity, near, indexHeads = 0, indexDim = 0 }, context) => {
      const made = Math.floor(context / group), read = Math.min(most, made) + Math.min(near, context);
      return { bytes: 2 * dim * read + indexDim * made, flops: 4 * heads * dim * read + 2 * indexHeads * indexDim * made };
    },
    // A matrix for each head in float32, read and written, whatever the context. Of each of its numbers: a decay, and a
    // multiplication and an addition to predict, to correct and to read out (the gated delta rule).
    state: ({ heads, dim, width }) => ({ bytes: 2 * heads * dim * width * 4, flops: 7 * heads * dim * width }),
  };

  /** FLOPs of the products with all weights. Only `logits` of the rows are multiplied by the last matrix. */
  const products = ({ weights, head }, rows, logits) => 2 * (weights - head) * rows + 2 * head * logits;

  /** Seconds to compute the keys and values of `tokens`, and the bytes that they have. Of their attention the triangle is computed. */
  function again(model, tokens, rate) {
    const { layers, heads, dim, kvHeads } = model;
    const flops = products(model, tokens, 0) + 2 * layers * heads * dim * tokens * tokens;
    return { flops, seconds: flops / rate, bytes: 2 * layers * kvHeads * dim * 2 * tokens };
  }

  /** Device seconds that a request takes for its prompt and for its answer, and what goes between the two. */
  function phases(model, { prompt, answer, batch }, { rate, bandwidth, link }) {
    const { seconds, bytes } = again(model, prompt, rate);
    const kv = again(model, prompt + answer / 2, rate).bytes;
    const step = linear(model, batch, batch, { rate, bandwidth }) + (batch * kv) / bandwidth;
    return { prefill: seconds, decode: (answer * step) / batch, step, moved: bytes / link, bytes };
  }

  /** Seconds that the products with all weights take for so many rows: reading them, or the arithmetic. */
  const linear = (model, rows, logits, { rate, bandwidth }) => Math.max((2 * model.weights) / bandwidth, products(model, rows, logits) / rate);

  /** Steps that a prompt is cut into, and how long each is beside `batch` decodes. A chunk's rows share the reading of the
   *  weights with the decodes; its attention is added. chunk: 0 for none. part: what the chunk adds to the step. */
  function chunked(model, { step }, { prompt, batch, chunk }, { rate, bandwidth }) {
    const count = chunk ? Math.ceil(prompt / chunk) : 1, each = prompt / count;
    const attention = (again(model, prompt, rate).flops - products(model, prompt, 0)) / count / rate;
    const part = linear(model, batch + each, batch, { rate, bandwidth }) - linear(model, batch, batch, { rate, bandwidth }) + attention;
    return { count, part, long: step + part };
  }

  /** One turn of each of `sessions` agents on a device whose pool keeps `pool` tokens: tokens and seconds of its prefill, seconds of its
   *  decode and of the whole turn, and how many decode at a time. Prefills of other sessions come between the steps and lengthen the
   *  decode. What the pool lacks is evicted from the end of the session whose turn comes next, which computes it again. */
  function turns(model, { sessions, pool, context, added, answer, pause }, { rate, bandwidth }) {
    const fit = Math.floor(pool / context), lost = Math.max(0, sessions * context - pool);
    const kept = Math.max(0, context - added - lost);
    const pairs = (context * context - kept * kept) / 2;
    const prefill = (products(model, context - kept, 1) + 4 * model.layers * model.heads * model.dim * pairs) / rate;
    const { bytes } = again(model, context, rate);
    const together = (turn) => Math.min(fit, Math.max(0, (sessions * (turn - prefill - pause)) / turn));
    const least = (turn) => { // how long a turn takes if this one is right for what it shares the device with
      const step = (2 * model.weights + together(turn) * bytes) / bandwidth;
      return prefill + pause + (answer * step) / (1 - (sessions * prefill) / turn);
    };
    let [low, high] = [sessions * prefill, sessions * prefill + 1e5];
    for (let half = 0; half < 100; half += 1) {
      const turn = (low + high) / 2;
      if (least(turn) > turn) low = turn; else high = turn;
    }
    return { fit, computed: context - kept, prefill, decode: high - prefill - pause, turn: high, decoding: together(high), bytes };
  }

  /** An adapter of rank r beside every product of a layer, and what a step reads with `distinct` of them in its batch. */
  function adapter({ layers, hidden, kv, ffn, weights }, { rank, distinct }) {
    const products = [[hidden, hidden], [hidden, kv], [hidden, kv], [hidden, hidden], [hidden, ffn], [hidden, ffn], [ffn, hidden]];
    const numbers = layers * rank * products.reduce((sum, [inputs, out]) => sum + inputs + out, 0);
    return { numbers, bytes: 2 * numbers, base: 2 * weights, read: 2 * weights + distinct * 2 * numbers,
      copies: distinct * 2 * weights };
  }

  /** Which rank has each piece of a prompt: neighbours, in turns, or from both ends (zigzag, in groups of 2 * ranks). */
  function owners(way, ranks, pieces) {
    return Array.from({ length: pieces }, (_, piece) => {
      if (way === 'order') return Math.floor((piece * ranks) / pieces);
      if (way === 'turns') return piece % ranks;
      const place = piece % (2 * ranks);
      return place < ranks ? place : 2 * ranks - 1 - place;
    });
  }

  /** Pairs of pieces that each rank computes under a causal mask; a piece with itself is half a pair. */
  const causal = (all, ranks) => Array.from({ length: ranks }, (_, rank) => all.reduce((sum, owner, piece) => sum + (owner === rank ? piece + 0.5 : 0), 0));

  /** The step at which the first of `count` answers ends, the second and so on, on average. */
  function ends(shape, count, mean) {
    const numbers = Array.from({ length: count }, (_, at) => at + 1);
    if (shape === 'equal') return numbers.map(() => mean);
    if (shape === 'uniform') return numbers.map((ended) => (2 * mean * ended) / (count + 1)); // from nothing to twice the mean
    let now = 0;
    return numbers.map((ended) => { now += mean / (count - ended + 1); return now; }); // without memory: the next of n ends after mean / n
  }

  /** What the last few take: their share of the steps and of the tokens, and how many run then on average. */
  function tail(all, few) {
    const begin = few < all.length ? all[all.length - few - 1] : 0, last = all.slice(-few);
    const tokens = last.reduce((sum, end) => sum + end - begin, 0), steps = all.at(-1) - begin;
    return { time: steps / all.at(-1), tokens: tokens / all.reduce((sum, end) => sum + end, 0), rows: steps ? tokens / steps : 0 };
  }

  const digits = (value, most = 3) => Number(value.toPrecision(most)).toLocaleString('en');
  const power = (value) => (2 ** value).toLocaleString('en');
  const options = (table) => Object.entries(table).map(([key, { label }]) => [key, label]);

  return { experts, random, draws, kinds, again, phases, chunked, turns, adapter, owners, causal, ends, tail, digits, power, options };
})();
