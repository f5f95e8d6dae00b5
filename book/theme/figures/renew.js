// Brings a stage to a new state and leaves alone what is the same in both: the browser computes style and layout for
// what was changed, which would be the most of a frame's work if all were drawn anew.
'use strict';

yaie.renew = (() => {
  const keyOf = (node) => node.dataset?.key;
  const fit = (old, fresh) => old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);

  /** `node` or the one behind it that stands for `fresh`, if any. */
  function fitting(node, fresh) {
    if (!keyOf(fresh)) return node && fit(node, fresh) ? node : null;
    let found = node;
    while (found && !fit(found, fresh)) found = found.nextSibling;
    return found;
  }

  function copyAttributes(old, fresh) {
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }

  /**
   * Gives `old` children that equal those of `fresh`, which loses some. Equal ones stay. What has a key is kept or
   * replaced as a whole: a tween takes the old one for how it was.
   */
  function renew(old, fresh) {
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const same = fitting(at, next);
      while (same && at !== same) {
        const gone = at;
        at = at.nextSibling;
        gone.remove();
      }
      if (!same) { old.insertBefore(next, at); continue; }
      at = same.nextSibling;
      if (same.isEqualNode(next)) continue;
      if (keyOf(next) || !next.firstElementChild) { same.replaceWith(next); continue; }
      copyAttributes(same, next);
      renew(same, next);
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  return renew;
})();
