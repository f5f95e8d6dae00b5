// Prompts of the reader's own in the figure of the radix tree: what the cache manager would call for them, on the port of
// the reference, from whatever tree the figure shows.
'use strict';

const radixOwn = (() => {
  const { html } = yaie;
  const { RadixTree } = radixPort;
  const POOL = 24, LONGEST = 36;
  const counted = (count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}`;
  const listed = (items) => (items.length > 1 ? `${items.slice(0, -1).join(', ')} and ${items.at(-1)}` : `${items[0] ?? 'none'}`);

  /** A tree with its requests, from a step of the figure. Every method returns the steps that it leads to. */
  class Desk {
    constructor(step, size) {
      this.size = size;
      this.tree = RadixTree.from(size, step.nodes);
      this.running = { ...step.running };
    }

    /** The state as a step. */
    step(say, call = '', text = '', marks = {}) {
      const pieces = text.match(new RegExp(`.{1,${this.size}}`, 'gs')) ?? [];
      const matched = this.tree.peek([...text], Math.floor(text.length / this.size)).length;
      return { say, call, text: pieces, matched, ...marks, nodes: this.tree.shown(), evictable: this.tree.numEvictable,
        blocks: this.tree.numBlocks, running: { ...this.running } };
    }

    move(name, node) {
      this.tree.lock(node);
      this.unlock(name);
      this.running[name] = this.tree.pathBlocks(node).at(-1) ?? -1;
    }

    unlock(name) {
      if (name in this.running) this.tree.unlock(this.tree.ending(this.running[name]));
      delete this.running[name];
    }

    /** A request comes: match, evict if the pool is short, insert. */
    ask(name, text) {
      const tokens = [...text], count = Math.floor(tokens.length / this.size);
      const before = this.tree.nodes().length;
      const [found, end] = this.tree.matchPrefix(tokens, count);
      this.move(name, end);
      const split = this.tree.nodes().length > before ? ' A node is split where the match ends.' : '';
      const match = found.length ? `${found.length} of its ${counted(count, 'block')} are in the tree, and locked.${split}`
        : 'None of its blocks is in the tree: all must be computed.';
      const steps = [this.step(`${name} comes. ${match}`, `match ${name}`, text, { matched: found.length })];
      const missing = count - found.length - (POOL - this.tree.numBlocks);
      if (missing > this.tree.numEvictable) {
        this.unlock(name);
        return [...steps, this.step(`${name} needs ${counted(count - found.length, 'block')} and the pool of ${POOL} has no room: `
          + 'too much is locked. It must wait until a request is done.', `unlock ${name}`)];
      }
      if (missing > 0) steps.push(this.evict(missing, `The pool has ${POOL} blocks, and ${name} needs ${missing} more than are free`));
      const filed = new Set(this.tree.allBlocks());
      const fresh = Array.from({ length: POOL * 2 }, (_, block) => block).filter((block) => !filed.has(block)).slice(0, count - found.length);
      this.move(name, this.tree.insert(tokens, [...found, ...fresh])[1]);
      const rest = tokens.length % this.size ? ` ${counted(tokens.length % this.size, 'character')} at its end ${tokens.length % this.size === 1 ? 'fills' : 'fill'} no block, and ${tokens.length % this.size === 1 ? 'stays' : 'stay'} out.` : '';
      const insert = fresh.length ? `${name} files ${counted(fresh.length, 'block')}, ${listed(fresh)}, and locks its whole path.`
        : `All of the ${counted(count, 'block')} that ${name} fills were there: nothing is filed.`;
      return [...steps, this.step(insert + rest, `insert ${name}`, text, { fresh })];
    }

    finish(name) {
      this.unlock(name);
      return [this.step(`${name} is done and unlocks its path. ${counted(this.tree.numEvictable, 'block')} may be evicted now.`, `unlock ${name}`)];
    }

    evict(count, why = 'Memory is short') {
      const before = this.tree.shown();
      const gone = this.tree.evict(count);
      const said = gone.length ? `evict(${count}) takes ${listed(gone)}, from the end of the unlocked leaf that was used longest ago.`
        : `evict(${count}) takes nothing: all that is left is locked.`;
      return this.step(`${why}: ${said}`, `evict ${count}`, '', { gone, before });
    }
  }

  const EMPTY = { nodes: [], running: {} };

  /** The controls, for the figure's settings. Steps follow the one that is shown; what came after it is dropped. */
  function settings(figure) {
    const { data } = figure;
    const button = (words, act) => Object.assign(html('button', { type: 'button' }, words), { onclick: act });
    const prompt = html('input', { type: 'text', class: 'prompt', maxlength: LONGEST, value: 'Be brief. What is a block?', size: 24 });
    const running = html('select', { 'aria-label': 'Running request', 'data-still': true });
    const desk = () => new Desk(figure.steps[figure.index], data.block_size);
    const add = (steps, from = figure.index + 1) => {
      figure.used();
      figure.player.pause();
      data.steps = [...data.steps.slice(0, from), ...steps];
      figure.go(from);
      if (steps.length > 1) figure.player.toggle();
    };
    const nextName = () => {
      const taken = data.steps.flatMap((step) => Object.keys(step.running));
      for (let code = 'A'.charCodeAt(0); ; code += 1) {
        const name = code <= 90 ? String.fromCharCode(code) : `R${code - 90}`;
        if (!taken.includes(name)) return name;
      }
    };
    const ask = button('Ask', () => { if (prompt.value) add(desk().ask(nextName(), prompt.value)); });
    const finish = button('Finish', () => { if (running.value) add(desk().finish(running.value)); });
    const evict = button('Evict 2', () => add([desk().evict(2)]));
    const clear = button('Clear', () => add([new Desk(EMPTY, data.block_size).step('An empty tree. Type a prompt and ask it, then one that begins alike.')], 0));
    prompt.onkeydown = (event) => { if (event.key === 'Enter') ask.click(); };
    figure.sync = (step) => {
      const kept = running.value, names = Object.keys(step.running);
      running.replaceChildren(...names.map((name) => html('option', { value: name, selected: name === kept }, name)));
      [finish.disabled, running.disabled] = [!names.length, !names.length];
      evict.disabled = !step.nodes.length;
    };
    return [html('label', {}, 'Prompt', prompt), ask, html('span', { class: 'pair' }, running, finish), evict, clear];
  }

  return { settings, Desk };
})();
