// The stage: how much room a figure has, pictures drawn to that measure, and a height that no step changes.
'use strict';

yaie.stage = (() => {
  const { svg, html } = yaie;
  const [LEAST, MOST, NARROW] = [260, 760, 560];

  /** The width in px that a picture in this stage has. Draw for it: then text keeps its size. */
  function room(stage) {
    const width = Number(stage.dataset.room) || stage.clientWidth || 600;
    return Math.max(LEAST, Math.min(MOST, width));
  }

  /** Whether the stage has a phone's width, and wants a layout of its own. */
  const isNarrow = (stage) => room(stage) < NARROW;

  /** An SVG of `width` by `height` px that is shown at that size, never smaller. label: what one sees in it. */
  function picture(width, height, label, ...children) {
    return svg('svg', { viewBox: `0 0 ${width} ${height}`, style: `max-width: ${width}px`, role: 'img', 'aria-label': label },
      ...children);
  }

  /** Line of text in an SVG. */
  function text(x, y, words, { size = 12, anchor = 'start', bold = false, ...rest } = {}) {
    const style = `font-size: ${size}px${bold ? '; font-weight: 700' : ''}`;
    return svg('text', { x, y, 'text-anchor': anchor, style, ...rest }, words);
  }

  /** Words in lines of at most `width` px, for mono text of a size: an SVG does not wrap. */
  function lines(words, width, size = 12) {
    const most = Math.max(8, Math.floor(width / (size * 0.61)));
    const found = [''];
    for (const word of String(words).split(' ')) {
      const longer = found.at(-1) ? `${found.at(-1)} ${word}` : word;
      if (longer.length > most && found.at(-1)) found.push(word);
      else found[found.length - 1] = longer;
    }
    return found;
  }

  /** What a look means: pairs of [attributes of a rect, words]. */
  function legend(...items) {
    return html('p', { class: 'legend' }, items.map(([look, words]) => html('span', {},
      svg('svg', { viewBox: '0 0 18 14', 'aria-hidden': 'true' }, svg('rect', { x: 1.5, y: 1.5, width: 15, height: 11, ...look })),
      words)));
  }

  /**
   * The heights in px of the tallest of some states: { stage, said }. Each of `draws` fills an empty stage and
   * returns what is said. All are laid out beside the figure, out of sight, in one go.
   */
  function tallest(figure, draws) {
    const { width } = figure;
    const box = html('div', { class: 'probe', 'aria-hidden': 'true', inert: true, style: `width: ${width}px` });
    figure.append(box);
    const drawn = draws.map((draw) => {
      const stage = html('div', { class: 'stage', 'data-room': width });
      const said = html('p', { class: 'said' });
      box.append(stage, said);
      said.textContent = draw(stage);
      stage.style.setProperty('--wide', `${stage.dataset.wide ?? 0}px`);
      return [stage, said];
    });
    const most = (which) => Math.ceil(Math.max(0, ...drawn.map((pair) => pair[which].getBoundingClientRect().height)));
    const found = { stage: most(0), said: most(1) };
    box.remove();
    return found;
  }

  return { room, isNarrow, picture, text, lines, legend, tallest };
})();
