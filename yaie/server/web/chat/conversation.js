// A conversation is a tree of messages: an answer asked for again, or taken another way at some token, stands beside
// the old one. What is seen is one path through the tree, by each message's `chosen` child.

/**
 * @typedef {object} Token
 * @property {number} id
 * @property {string} text what it added to the answer; nothing while a character is incomplete
 * @property {?number} logprob
 *
 * @typedef {object} Turn
 * @property {number} id
 * @property {'root'|'user'|'assistant'} role
 * @property {?Turn} parent
 * @property {Turn[]} children
 * @property {number} chosen
 * @property {string} [text] of a user
 * @property {?number[]} [prompt] of an answer: the ids in front of it, once they are known
 * @property {Token[]} [tokens]
 * @property {number} [given] how many of its first tokens were not drawn by this request
 * @property {'streaming'|'done'|'stopped'|'failed'} [state]
 * @property {string} [reason] why it ended: stop or length
 * @property {string} [error] in words
 * @property {{path: string, body: object}} [request] not of an answer that storage kept
 * @property {Record<string, number>} [settings] the sliders' when it was asked for
 * @property {?string} [model] the name of the one that wrote it
 * @property {?import('./speed.js').Speed} [speed] once it has ended
 * @property {number} [wanted] tokens that it asked for at most, if there was room for them
 * @property {AbortController} [abort]
 */

let numTurns = 0;
let numConversations = 0;

const turn = (role, parent, more) => ({
  id: (numTurns += 1), role, parent, children: [], chosen: 0, ...more,
});

export class Conversation {
  /** @param {string} [id] that no other conversation of this browser has */
  constructor(id = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`) {
    this.id = id;
    this.number = numConversations += 1;
    this.name = ''; // given by hand
    this.system = '';
    this.draft = '';
    this.root = turn('root', null, {});
  }

  /** How it is called in the list: its name, or its first words. */
  get title() {
    const first = this.name || (this.root.children[this.root.chosen]?.text ?? '');
    return first.replace(/\s+/g, ' ').trim().slice(0, 40) || `Conversation ${this.number}`;
  }

  /** Whether there is nothing in it that anybody would miss. */
  get isEmpty() {
    return !this.root.children.length && !this.draft.trim() && !this.system.trim() && !this.name;
  }

  /** @returns {Turn[]} all, each behind its parent */
  get turns() {
    const all = [...this.root.children];
    for (const each of all) all.push(...each.children);
    return all;
  }

  /** @returns {Turn[]} what is seen, from the first message to the last */
  get path() {
    const path = [];
    for (let at = this.root; at.children.length; path.push(at)) at = at.children[at.chosen];
    return path;
  }

  /** @returns {Turn} the last message, or the root */
  get tip() {
    return this.path.at(-1) ?? this.root;
  }

  get isStreaming() {
    return this.turns.some(({ state }) => state === 'streaming');
  }

  /** Adds a message behind `parent` and looks at it. */
  add(parent, role, more) {
    const made = turn(role, parent, more);
    parent.chosen = parent.children.push(made) - 1;
    return made;
  }

  ask(text) {
    return this.add(this.tip, 'user', { text });
  }

  /** An answer to a message; `prompt` and `tokens` where it goes on from tokens that are there. */
  answer(parent, prompt = null, tokens = []) {
    return this.add(parent, 'assistant', {
      prompt, tokens, given: tokens.length, state: 'streaming', reason: null, error: null, abort: new AbortController(),
    });
  }

  /**
   * Puts other words into a message. What was behind it answered the old ones, and goes.
   * @returns {Turn[]} what has gone
   */
  edit(message, text) {
    const behind = [...message.children];
    for (const each of behind) behind.push(...each.children);
    Object.assign(message, { text, children: [], chosen: 0 });
    return behind;
  }

  /** The messages down to a turn, as the API wants them. @param {Turn} last */
  messages(last, draft = '') {
    const found = [];
    for (let at = last; at.role !== 'root'; at = at.parent) {
      found.unshift({ role: at.role, content: at.role === 'user' ? at.text : textOf(at) });
    }
    if (this.system.trim()) found.unshift({ role: 'system', content: this.system });
    if (draft) found.push({ role: 'user', content: draft });
    return found;
  }
}

/** An answer's text, or that of its first tokens. @param {Turn} answer */
export const textOf = (answer, count = Infinity) => answer.tokens.slice(0, count).map(({ text }) => text).join('');

/** The ids in front of an answer's token, those of the prompt included. @param {Turn} answer */
export const prefixOf = (answer, count = Infinity) =>
  [...answer.prompt, ...answer.tokens.slice(0, count).map(({ id }) => id)];
