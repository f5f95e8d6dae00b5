// How fast an answer came: the first token's wait, and the rate of those behind it, as this browser received them.

const SHORTEST = 2; // ms: tokens that came closer together came in one piece, which says nothing about the engine

/**
 * @typedef {object} Speed
 * @property {number} first ms from the request to the first token
 * @property {?number} rate tokens a second behind the first ones; null where too little came to say
 */
export class Stopwatch {
  #asked = 0;
  #first = null;
  #last = null;
  #atFirst = 0; // tokens that came with the first one, for which nobody waited
  #seen = 0;
  #usage = null;

  start() {
    this.#asked = performance.now();
  }

  /** Tokens that came at a time of `performance.now()`. */
  came(count, at) {
    if (!count) return;
    this.#last = at;
    this.#first ??= at;
    this.#seen += count;
    if (this.#last === this.#first) this.#atFirst = this.#seen;
  }

  /** The stream's own count, which it says at its end. */
  counted(count) {
    this.#usage = count;
  }

  /** @returns {?Speed} null where no token came */
  speed() {
    if (this.#first === null) return null;
    const time = this.#last - this.#first;
    const behind = (this.#usage ?? this.#seen) - this.#atFirst;
    return { first: this.#first - this.#asked, rate: time >= SHORTEST && behind > 0 ? (1000 * behind) / time : null };
  }
}

const digits = (value) => value.toLocaleString('en', { maximumSignificantDigits: value < 100 ? 2 : 3 });

/** @param {?Speed} speed */
export function inWords(speed) {
  if (!speed) return '';
  const first = speed.first < 1000 ? `${Math.max(1, Math.round(speed.first))} ms` : `${digits(speed.first / 1000)} s`;
  return `First token after ${first}${speed.rate ? `, then ${digits(speed.rate)} tokens/s received` : ''}.`;
}
