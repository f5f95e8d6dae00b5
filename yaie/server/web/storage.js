// The browser's storage, or memory where the browser refuses: a page may be forbidden to keep anything, and even to ask.

const PROBE = 'yaie-probe';

/** A storage that forgets with the page. */
function memory() {
  const held = new Map();
  return {
    isKept: false,
    get: (name) => held.get(name) ?? null,
    set(name, text) { held.set(name, text); return true; },
    remove(name) { held.delete(name); },
    names: () => [...held.keys()],
  };
}

/**
 * @typedef {object} Kept
 * @property {boolean} isKept whether it outlives the page
 * @property {(name: string) => ?string} get
 * @property {(name: string, text: string) => boolean} set false where there is no room
 * @property {(name: string) => void} remove
 * @property {() => string[]} names
 *
 * @param {'localStorage'|'sessionStorage'} kind @returns {Kept}
 */
export function storage(kind) {
  let area;
  try {
    area = window[kind];
    area.removeItem(PROBE);
    try {
      area.setItem(PROBE, '1');
      area.removeItem(PROBE);
    } catch (error) { // full, which what is there explains, or without any room at all
      if (!area.length) throw error;
    }
  } catch {
    return memory();
  }
  return {
    isKept: true,
    get: (name) => area.getItem(name),
    set(name, text) {
      try {
        area.setItem(name, text);
        return true;
      } catch {
        return false;
      }
    },
    remove: (name) => area.removeItem(name),
    names: () => Object.keys(area),
  };
}
