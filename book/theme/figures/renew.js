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

  /** For each child of `fresh` the one of `old` that stands for it, if any, and whether the two are equal. */
  function pairs(old, fresh) {
    let at = old.firstChild;
    return [...fresh.childNodes].map((next) => {
      const same = fitting(at, next);
      if (same) at = same.nextSibling;
      const isEqual = same?.isEqualNode(next) ?? false;
      const isHolder = same && !isEqual && !keyOf(next) && next.firstElementChild;
      return { next, same, isEqual, isHolder };
    });
  }

  /**
   * Gives `old` children that equal those of `fresh`, which loses some. Equal ones stay; where most are others, all are
   * replaced at once, which costs less. What has a key is kept or replaced as a whole: a tween takes the old one for
   * how it was.
   */
  function renew(old, fresh) {
    const found = pairs(old, fresh);
    if (found.filter(({ isEqual, isHolder }) => isEqual || isHolder).length * 2 < found.length) {
      old.replaceChildren(...fresh.childNodes);
      return;
    }
    let at = old.firstChild;
    const removeUntil = (end) => {
      while (at !== end) {
        const gone = at;
        at = at.nextSibling;
        gone.remove();
      }
    };
    for (const { next, same, isEqual, isHolder } of found) {
      if (!same) { old.insertBefore(next, at); continue; }
      removeUntil(same);
      at = same.nextSibling;
      if (isHolder) {
        copyAttributes(same, next);
        renew(same, next);
      } else if (!isEqual) same.replaceWith(next);
    }
    removeUntil(null);
  }

  return renew;
})();
