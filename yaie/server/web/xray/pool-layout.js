// Which blocks the map of the pool shows, and how large. No drawing: a test can ask.

import { kindOf } from './pool-model.js';

const HEIGHT = 300, LARGEST = 44, NEAR = 30, LEGIBLE = 18, GUTTER = 38;

/** Blocks that are shown or left out together. Rows of the zoomed map are whole numbers of them. */
const GROUP = 8;

/** The largest cell with which all blocks fit into a width and a height. */
export function cellSize(blocks, width, height = HEIGHT) {
  for (let size = LARGEST; size > 4; size -= 1) {
    if (Math.ceil(blocks / Math.floor(width / size)) * size <= height) return size;
  }
  return 4;
}

/** Whether the cells are too small for letters when all blocks are shown. */
export const isLarge = (blocks, width) => cellSize(Math.max(1, blocks), width) < LEGIBLE;

/** The groups with a block that is not free. @returns {Set<number>} */
export function groupsInUse(state) {
  const found = new Set();
  const { num_blocks: blocks = 0 } = state.header;
  for (let block = 0; block < blocks; block += 1) {
    const group = Math.floor(block / GROUP);
    if (kindOf(state, block) === 'free') continue;
    found.add(group);
    block = (group + 1) * GROUP - 1; // on to the next group
  }
  return found;
}

/**
 * @typedef {object} Grid
 * @property {number} size of a cell @property {number} columns
 * @property {number} left where the first column begins: in front of it stand the rows' first blocks
 * @property {number[]} blocks those that are shown, row by row
 */

/** All of them. @returns {Grid} */
export function wholeGrid(blocks, width) {
  const size = cellSize(Math.max(1, blocks), width);
  return { size, columns: Math.max(1, Math.floor(width / size)), left: 0,
    blocks: Array.from({ length: blocks }, (_, block) => block) };
}

/** Rows that contain one of these groups, the first row if there is none. @returns {Grid} */
export function zoomedGrid(blocks, groups, width) {
  const room = width - GUTTER;
  let columns = Math.max(GROUP, Math.floor(room / NEAR / GROUP) * GROUP);
  for (; ; columns += GROUP) {
    const rows = new Set([...groups].map((group) => Math.floor((group * GROUP) / columns)));
    if (!rows.size) rows.add(0);
    const size = Math.max(4, Math.min(NEAR, Math.floor(room / columns)));
    if (rows.size * size > HEIGHT && size > 4) continue;
    const shown = [...rows].sort((one, other) => one - other).flatMap((row) =>
      Array.from({ length: Math.min(columns, blocks - row * columns) }, (_, column) => row * columns + column));
    return { size, columns, left: GUTTER, blocks: shown };
  }
}

/** Remembers which groups were in use, so that rows do not come and go, as long as they can be read. */
export class Zoom {
  constructor() {
    this.header = null;
    this.seen = new Set();
  }

  /** @returns {Grid} */
  grid(state, width) {
    if (state.header !== this.header) Object.assign(this, { header: state.header, seen: new Set() });
    const now = groupsInUse(state);
    const { num_blocks: blocks = 0 } = state.header;
    for (const group of now) this.seen.add(group);
    const grid = zoomedGrid(blocks, this.seen, width);
    if (grid.size >= LEGIBLE) return grid;
    this.seen = now;
    return zoomedGrid(blocks, now, width);
  }
}
