// The records that are kept, and the state at one of them. Playing forward and going back give the same state, since
// both come out of `reduce`; a state is kept for every 25th record, from which the others are computed again.

import { initial, reduce } from './reduce.js';

const EVERY = 25;

export class Store {
  /** @param {number} limit how many steps are kept at least, once there were so many */
  constructor(limit = 1000) {
    this.limit = limit;
    this.listeners = new Set();
    this.reset({});
  }

  /** Forget everything; a header begins a new engine or recording. */
  reset(header) {
    this.again = false;
    this.header = header;
    this.records = [];
    this.dropped = 0;
    this.base = initial(header);
    this.kept = [this.base]; // kept[i] is the state before records[i * EVERY]
    this.head = this.base;
    this.cursor = -1;
    this.shown = this.base;
    this.following = true;
    this.tell();
  }

  /** Take a record in. */
  push(record) {
    if (record.kind === 'header') return this.meet(record);
    if (record.kind === 'snapshot') return this.begin(record);
    if (record.kind !== 'step') return undefined;
    if (this.records.length && this.records.length % EVERY === 0) this.kept.push(this.head);
    this.records.push(record);
    this.head = reduce(this.head, record);
    if (this.records.length >= this.limit + EVERY) this.drop();
    if (this.following) this.show(this.records.length - 1, this.head);
    else this.tell();
    return undefined;
  }

  /** A header: of the engine that is known already, whose stream was interrupted, or of another one. */
  meet(header) {
    const isKnown = this.records.length > 0 && JSON.stringify(header) === JSON.stringify(this.header);
    this.again = isKnown;
    if (!isKnown) this.reset(header);
  }

  /** A snapshot. Unless it is where we stand, what came before is not connected with what comes. */
  begin(record) {
    const missedNothing = this.again && record.n === this.head.n;
    this.again = false;
    if (missedNothing) return;
    const following = this.following || this.records.length === 0;
    this.dropped += this.records.length;
    this.records = [];
    this.base = reduce(initial(this.header), record);
    this.snapshot = record;
    this.kept = [this.base];
    this.head = this.base;
    this.following = following;
    this.show(-1, this.base);
  }

  drop() {
    this.records.splice(0, EVERY);
    this.kept.shift();
    this.base = this.kept[0];
    this.dropped += EVERY;
    this.cursor = Math.max(-1, this.cursor - EVERY);
    if (!this.following && this.cursor === -1) this.shown = this.base;
  }

  /** The state after the record at `index`; -1 is the one before all that are kept. */
  stateAt(index) {
    if (index >= this.records.length - 1) return this.head;
    if (index < 0) return this.base;
    const chunk = Math.floor(index / EVERY);
    let state = this.kept[chunk];
    for (let at = chunk * EVERY; at <= index; at += 1) state = reduce(state, this.records[at]);
    return state;
  }

  /** Go to a record, and stay there unless it is the last of a stream that is followed. */
  seek(index) {
    const goal = Math.max(-1, Math.min(this.records.length - 1, index));
    this.following = false;
    // A step forward is one reduction; anything else starts at a kept state.
    const isNext = goal === this.cursor + 1 && goal >= 0 && this.shown !== null;
    this.show(goal, isNext ? reduce(this.shown, this.records[goal]) : this.stateAt(goal));
  }

  /** Go to the end and stay with what comes. */
  follow() {
    this.following = true;
    this.show(this.records.length - 1, this.head);
  }

  hold() {
    this.following = false;
    this.tell();
  }

  show(cursor, state) {
    this.cursor = cursor;
    this.shown = state;
    this.tell();
  }

  /** Calls `listener` after every change; returns what ends that. */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell() {
    for (const listener of this.listeners) listener(this);
  }

  get state() { return this.shown; }
  get isAtEnd() { return this.cursor >= this.records.length - 1; }
}
