// Keeps conversations in the browser's storage, each under a name of its own: two tabs do not overwrite each other's.
// Where there is no room for one, it says so and throws nothing away.

import { read, written } from './stored.js';

const EACH = 'yaie-chat:';
const OPEN = 'yaie-chat-open';
const SWITCH = 'yaie-chats'; // 'off', or nothing
const PAUSE = 400; // ms between a change and its writing
export const ROOM = 2_000_000; // characters in all; browsers give an origin some five million

export class Keeper {
  #storage;
  #told;
  #changed = new Set(); // conversations that are not written yet
  #unkept = new Set(); // those for which there is no room
  #timer = null;

  /** @param {import('../storage.js').Kept} storage @param {() => void} told called when `state` or `used` may differ */
  constructor(storage, told) {
    this.#storage = storage;
    this.#told = told;
  }

  /** @returns {'on'|'off'|'full'|'forbidden'} */
  get state() {
    if (!this.#storage.isKept) return 'forbidden';
    if (this.#storage.get(SWITCH) === 'off') return 'off'; // perhaps by another tab
    return this.#unkept.size ? 'full' : 'on';
  }

  get #keeps() {
    return ['on', 'full'].includes(this.state);
  }

  /** @returns {number} of the room for conversations, from 0 to 1 */
  get used() {
    return this.#size() / ROOM;
  }

  #names() {
    return this.#storage.names().filter((name) => name.startsWith(EACH));
  }

  /** Characters of all that is kept, but for one that is written anew. */
  #size(except) {
    return this.#names().filter((name) => name !== except)
      .reduce((sum, name) => sum + name.length + (this.#storage.get(name)?.length ?? 0), 0);
  }

  /** @returns {{conversations: import('./conversation.js').Conversation[], open: ?string}} what was kept, the oldest first */
  load() {
    if (!this.#keeps) return { conversations: [], open: null };
    const conversations = this.#names().sort()
      .map((name) => read(name.slice(EACH.length), this.#storage.get(name))).filter(Boolean);
    return { conversations, open: this.#storage.get(OPEN) };
  }

  /** A conversation is another than was written. */
  change(conversation) {
    this.#changed.add(conversation);
    this.#timer ??= setTimeout(() => this.write(), PAUSE);
  }

  opened(conversation) {
    if (this.#keeps) this.#storage.set(OPEN, conversation.id);
  }

  /** Writes what has changed, and what found no room before. */
  write() {
    clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#keeps) {
      const all = new Set([...this.#changed, ...this.#unkept]);
      this.#unkept = new Set([...all].filter((each) => !this.#put(each)));
    }
    this.#changed.clear();
    this.#told();
  }

  #put(conversation) {
    const name = EACH + conversation.id;
    if (conversation.isEmpty) {
      this.#storage.remove(name);
      return true;
    }
    const text = written(conversation);
    return this.#size(name) + name.length + text.length <= ROOM && this.#storage.set(name, text);
  }

  /** A conversation has been deleted. */
  forget(conversation) {
    this.#changed.delete(conversation);
    this.#unkept.delete(conversation);
    this.#storage.remove(EACH + conversation.id);
    this.write();
  }

  /** Off deletes all that was kept; on keeps what there is. */
  turn(isOn, conversations) {
    if (isOn) {
      this.#storage.remove(SWITCH);
      for (const each of conversations) this.#changed.add(each);
      this.write();
      return;
    }
    this.#unkept.clear();
    for (const name of [...this.#names(), OPEN]) this.#storage.remove(name);
    this.#storage.set(SWITCH, 'off');
    this.write();
  }
}
