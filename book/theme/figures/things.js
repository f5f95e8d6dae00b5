// The same thing is lit wherever it stands: what the pointer or the keyboard is on, everything else in the figure with
// one of its data-things, and the lines of the page's listings that are about it.
'use strict';

yaie.things = (() => {
  const { html } = yaie;
  const of = (element) => (element?.dataset?.thing ?? '').split(' ').filter(Boolean);

  /** Lines of the page's listings that hold one of the texts: [pre, code, line]. */
  function linesWith(texts) {
    const found = [];
    for (const code of document.querySelectorAll('main pre > code:not(.language-console)')) {
      code.textContent.split('\n').forEach((words, line) => {
        if (texts.some((text) => words.includes(text))) found.push([code.parentElement, code, line]);
      });
    }
    return found;
  }

  function lineHeight(code) {
    const style = getComputedStyle(code);
    const count = code.textContent.replace(/\n$/, '').split('\n').length;
    const inner = code.offsetHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
    return [code.offsetTop + parseFloat(style.paddingTop), inner / count];
  }

  /** A bar behind a line of a listing. */
  function mark([pre, code, line]) {
    const [top, height] = lineHeight(code);
    const bar = html('div', { class: 'lit-line', 'aria-hidden': 'true',
      style: `top: ${top + line * height}px; height: ${height}px` });
    pre.append(bar);
    return bar;
  }

  /** Lights for one figure. code: texts of listings' lines by thing. Returns { light(things), ... }. */
  function lights(figure, code = {}) {
    const told = html('span', { class: 'sr-only', role: 'status' });
    let [lit, bars, where, byPointer] = [[], [], [], false];

    function paint() {
      for (const element of figure.stage.querySelectorAll('[data-thing]')) {
        element.classList.toggle('lit', of(element).some((thing) => lit.includes(thing)));
        if (!element.classList.length) element.removeAttribute('class'); // as it was drawn
      }
    }
    function light(things) {
      if (things.join() === lit.join()) return;
      lit = things;
      paint();
      bars.forEach((bar) => bar.remove());
      bars = where.filter(([thing]) => lit.includes(thing)).flatMap(([, lines]) => lines.map(mark));
    }

    /** As `light`, by the pointer: where that lies on nothing, what the keyboard has lit stays. */
    function point(things) {
      if (!things.length && !byPointer) return;
      byPointer = things.length > 0;
      light(things);
    }

    const under = (target) => of(target.closest?.('[data-thing]'));
    figure.stage.addEventListener('pointerover', (event) => point(under(event.target)));
    figure.stage.addEventListener('pointerleave', () => point([]));
    figure.stage.addEventListener('focusin', (event) => light(under(event.target)));
    figure.stage.addEventListener('focusout', () => light([]));
    /** Looks for the lines of the listings; once, when the figure comes into sight. */
    function find() {
      if (where.length) return;
      where = Object.entries(code).map(([thing, texts]) => [thing, linesWith(texts)]);
      for (const pre of new Set(where.flatMap(([, lines]) => lines.map(([each]) => each)))) {
        pre.addEventListener('pointermove', (event) => {
          const at = where.filter(([, lines]) => lines.some(([each, of_, line]) => {
            if (each !== pre) return false;
            const [top, height] = lineHeight(of_);
            const y = event.clientY - pre.getBoundingClientRect().top;
            return y >= top + line * height && y < top + (line + 1) * height;
          }));
          point(at.map(([thing]) => thing));
        });
        pre.addEventListener('pointerleave', () => point([]));
      }
    }

    /** With the keyboard on the stage: the next or the last thing, one after the other. */
    function walk(way) {
      const all = [...new Set([...figure.stage.querySelectorAll('[data-thing]')].flatMap(of))];
      if (!all.length) return false;
      const at = all.indexOf(lit[0]);
      const thing = all[at < 0 && way < 0 ? all.length - 1 : (at + way + all.length) % all.length];
      byPointer = false;
      light([thing]);
      told.textContent = thing.replaceAll('-', ' ');
      return true;
    }

    return { light, walk, find, told, redrawn: () => { if (lit.length) paint(); } };
  }

  return lights;
})();
