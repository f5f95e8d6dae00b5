// What the chapters of "A look around" reckon with. Every function takes plain numbers and is tested by hand-made cases.
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

  /** Seconds to compute the keys and values of `tokens`, and to fetch them at so many bytes a second. */
  function again({ layers, heads, dim, kvHeads, weights }, tokens, rate) {
    const flops = 2 * weights * tokens + 2 * layers * heads * dim * tokens * tokens;
    return { flops, seconds: flops / rate, bytes: 2 * layers * kvHeads * dim * 2 * tokens };
  }

  /** Device seconds that a request takes for its prompt and for its answer, and what goes between the two. */
  function phases(model, { prompt, answer, batch }, { rate, bandwidth, link }) {
    const { seconds, bytes } = again(model, prompt, rate);
    const kv = again(model, prompt + answer / 2, rate).bytes;
    const step = Math.max((2 * model.weights + batch * kv) / bandwidth, (2 * model.weights * batch) / rate);
    return { prefill: seconds, decode: (answer * step) / batch, step, moved: bytes / link, bytes };
  }

  /** Steps that a prompt is cut into, and how long each is if its chunk's time is added to a decode step. chunk: 0 for none. */
  function chunked({ prefill, step }, prompt, chunk) {
    const count = chunk ? Math.ceil(prompt / chunk) : 1;
    return { count, part: prefill / count, long: step + prefill / count };
  }

  /** An adapter of rank r beside every product of a layer, and what a step reads with `distinct` of them in its batch. */
  function adapter({ layers, hidden, kv, ffn, weights }, { rank, distinct }) {
    const products = [[hidden, hidden], [hidden, kv], [hidden, kv], [hidden, hidden], [hidden, ffn], [hidden, ffn], [ffn, hidden]];
    const numbers = layers * rank * products.reduce((sum, [inputs, out]) => sum + inputs + out, 0);
    return { numbers, bytes: 2 * numbers, base: 2 * weights, read: 2 * weights + distinct * 2 * numbers,
      copies: distinct * 2 * weights };
  }

  const digits = (value, most = 3) => Number(value.toPrecision(most)).toLocaleString('en');
  const power = (value) => (2 ** value).toLocaleString('en');
  const options = (table) => Object.entries(table).map(([key, { label }]) => [key, label]);

  return { experts, random, draws, kinds, again, phases, chunked, adapter, digits, power, options };
})();
