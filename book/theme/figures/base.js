// What all scripts of the book's figures and quizzes share: making elements, keeping answers, and the two kinds of
// figure. The shell (question.js, tween.js, stage.js, things.js, link.js, player.js, shell.js) gives them their frame.
'use strict';

const yaie = (() => {
  const SVG = 'http://www.w3.org/2000/svg';

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
      if (value === true) element.setAttribute(name, '');
      else if (value !== false && value != null) element.setAttribute(name, value);
    }
    element.append(...children.flat(Infinity).filter((child) => child != null));
    return element;
  }
  const html = (tag, attributes, ...children) =>
    fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);

  // Kept in this browser. A page opened from a folder may have no storage: then nothing is kept.
  const store = {
    get(key) {
      try { return JSON.parse(localStorage.getItem(`yaie:${key}`)); } catch { return null; }
    },
    set(key, value) {
      try { localStorage.setItem(`yaie:${key}`, JSON.stringify(value)); } catch { /* not kept */ }
    },
  };

  // The preprocessor has rendered these texts from the figure's file: they are ours, not a visitor's.
  function fromHtml(text) {
    const template = document.createElement('template');
    template.innerHTML = text;
    return template.content;
  }

  // Figures that are declared before the shell has loaded wait for it. A page without the shell, such as that of a
  // test of a figure's arithmetic, never defines an element.
  const waiting = [];
  let define = (...figure) => waiting.push(figure);

  /** take(kind, name, spec) defines the elements from now on, and those that were declared before. */
  function takeOver(take) {
    define = take;
    waiting.splice(0).forEach((figure) => take(...figure));
  }

  /** Declares <yaie-NAME>, which steps through data.steps, or through those of one of data.tracks. */
  const stepped = (name, spec) => define('stepped', name, spec);
  /** Declares <yaie-NAME>, drawn anew from the values of its controls whenever one changes. */
  const controlled = (name, spec) => define('controlled', name, spec);

  return { svg, html, store, fromHtml, takeOver, stepped, controlled };
})();
