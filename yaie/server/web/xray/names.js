// A letter and a colour for each request, in the order in which they were first seen. Colours come again after
// eight requests, letters do not: what a colour says, a letter says too.

export const NUM_HUES = 8;
/** What the page itself asks for "next token" has no letter of its own, and no colour. */
const PEEK = { letter: '?', hue: NUM_HUES };

function letters(number) {
  const last = String.fromCharCode(65 + (number % 26));
  return number < 26 ? last : letters(Math.floor(number / 26) - 1) + last;
}

export class Names {
  constructor() {
    this.known = new Map();
    this.count = 0;
  }

  /** @returns {{letter: string, hue: number, order: number}} */
  of(id) {
    let name = this.known.get(id);
    if (!name) {
      name = { letter: letters(this.count), hue: this.count % NUM_HUES, order: this.count };
      this.known.set(id, name);
      this.count += 1;
      // Nobody looks at the first of thousands any more.
      if (this.known.size > 4000) this.known.delete(this.known.keys().next().value);
    }
    return name;
  }

  isPeek(id) {
    return this.of(id).letter === PEEK.letter;
  }

  /** Names for the requests of a record, in the order of their arrival. */
  see(record) {
    for (const { id, peek } of record.new ?? record.requests ?? []) {
      if (peek) this.known.set(id, { ...PEEK, order: this.count });
      else this.of(id);
    }
  }
}
