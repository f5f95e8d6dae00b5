// What a step changes moves from its old place to its new one (FLIP): an element is recognised by its data-key.
//
// Before a new state is shown, capture() notes what the keyed elements look like; afterwards run() takes each that has
// become another one back to where that was and lets it go. Shapes of SVG have their numbers interpolated, so that a bar grows
// and an edge follows what it joins; groups and HTML are moved as a whole. What has a new key fades in, what is gone
// fades out. A key inside a keyed element is ignored: the outer one carries it along.
'use strict';

yaie.tween = (() => {
  const NUMBERS = { // by tag, what can be interpolated
    rect: ['x', 'y', 'width', 'height'], text: ['x', 'y'], line: ['x1', 'y1', 'x2', 'y2'], circle: ['cx', 'cy', 'r'],
    path: ['d'], polygon: ['points'],
  };
  const PAINTS = ['fill', 'stroke'];
  const SIZES = ['width', 'height', 'left', 'top'];
  const DIGITS = /-?\d*\.?\d+(?:e-?\d+)?/g;
  const running = new WeakMap(); // by stage: how to end what is under way
  const calm = matchMedia('(prefers-reduced-motion: reduce)');
  const ease = (t) => 1 - (1 - t) ** 3;

  const isShape = (element) => element instanceof SVGElement && element.tagName !== 'g' && element.tagName !== 'svg';

  /** The keyed elements that no other one carries, in the order of the document. */
  function keyed(stage) {
    let outer = null;
    return [...stage.querySelectorAll('[data-key]')].filter((element) => {
      if (outer?.contains(element) || element.classList.contains('ghost')) return false;
      outer = element;
      return true;
    });
  }

  /** A place within the stage, in pixels. */
  function placeOf(element, origin) {
    const { left, top } = element.getBoundingClientRect();
    return { left: left - origin.left, top: top - origin.top };
  }

  /** What the keyed elements look like now, also in the middle of a tween: Map of key to a note. */
  function capture(stage) {
    if (calm.matches) return null;
    const notes = new Map();
    const origin = stage.getBoundingClientRect();
    const pictures = [...stage.querySelectorAll('svg')];
    for (const element of keyed(stage)) {
      const note = { element, picture: pictures.indexOf(element.ownerSVGElement) };
      if (!isShape(element)) note.place = placeOf(element, origin);
      if (isShape(element)) {
        note.numbers = {};
        for (const name of [...NUMBERS[element.tagName] ?? [], ...PAINTS]) note.numbers[name] = element.getAttribute(name);
      } else if (element.tagName !== 'g') {
        const style = getComputedStyle(element);
        note.paint = style.backgroundColor;
        note.font = style.font;
        note.size = Object.fromEntries(SIZES.map((name) => [name, element.style[name]]));
        note.box = [element.offsetWidth, element.offsetHeight];
      }
      notes.set(element.dataset.key, note);
    }
    return notes;
  }

  /** The function of t in [0, 1] that sets an attribute between two texts, or null if they differ in more than numbers. */
  function between(element, name, from, to) {
    if (from === to || from == null || to == null) return null;
    const [a, b] = [from.match(DIGITS) ?? [], to.match(DIGITS) ?? []];
    const frame = to.split(DIGITS);
    if (a.length !== b.length || from.split(DIGITS).join('|') !== frame.join('|')) return null;
    const [start, end] = [a.map(Number), b.map(Number)];
    return (t) => element.setAttribute(name, t === 1 ? to
      : frame.map((words, i) => (i < end.length ? `${words}${(start[i] + (end[i] - start[i]) * t).toFixed(2)}` : words)).join(''));
  }

  const fade = (element, frames, duration) => element.animate(frames, { duration, easing: 'ease-out' });

  /** Sets the opacity of an SVG element; many of these cost less than as many animations. */
  function veil(element, from, to, moves) {
    const own = element.getAttribute('opacity');
    moves.push((t) => {
      if (t < 1) element.setAttribute('opacity', (from + (to - from) * t).toFixed(2));
      else if (own !== null) element.setAttribute('opacity', own);
      else element.removeAttribute('opacity');
    });
  }

  function moveShape(element, note, duration, moves) {
    for (const name of NUMBERS[element.tagName] ?? []) {
      const set = between(element, name, note.numbers[name], element.getAttribute(name));
      if (set) moves.push(set);
    }
    for (const name of PAINTS) {
      const [from, to] = [note.numbers[name], element.getAttribute(name)];
      if (from && to && from !== to) fade(element, [{ [name]: from }, { [name]: to }], duration);
    }
  }

  function moveGroup(element, note, place, moves) {
    const scale = element.ownerSVGElement.getScreenCTM()?.a || 1;
    const [dx, dy] = [(note.place.left - place.left) / scale, (note.place.top - place.top) / scale];
    if (Math.abs(dx) + Math.abs(dy) < 0.5) return;
    const own = element.getAttribute('transform') ?? '';
    moves.push((t) => {
      if (t < 1) element.setAttribute('transform', `translate(${(dx * (1 - t)).toFixed(2)} ${(dy * (1 - t)).toFixed(2)}) ${own}`);
      else if (own) element.setAttribute('transform', own);
      else element.removeAttribute('transform');
    });
  }

  function moveBox(element, note, place, duration) {
    const [dx, dy] = [note.place.left - place.left, note.place.top - place.top];
    const [from, to] = [{}, {}];
    for (const name of SIZES) {
      if (note.size[name] && element.style[name] && note.size[name] !== element.style[name]) {
        [from[name], to[name]] = [note.size[name], element.style[name]];
      }
    }
    const isPlaced = to.left || to.top; // then its place is tweened already
    if (!isPlaced && Math.abs(dx) + Math.abs(dy) >= 0.5) {
      [from.transform, to.transform] = [`translate(${dx}px, ${dy}px)`, 'none'];
    }
    if (note.element.className !== element.className) [from.backgroundColor, to.backgroundColor] = [note.paint, getComputedStyle(element).backgroundColor];
    if (Object.keys(from).length) fade(element, [from, to], duration);
  }

  /** What is gone stays a moment where it was, as a picture of itself. */
  function ghost(stage, pictures, note, duration, moves) {
    const { element } = note;
    if (element instanceof SVGElement) {
      const picture = pictures[note.picture];
      if (!picture) return null;
      picture.append(element);
      veil(element, 1, 0, moves);
    } else {
      if (/^(TR|TD|TH|TBODY)$/.test(element.tagName)) return null;
      const { style } = element;
      [style.position, style.left, style.top] = ['absolute', `${note.place.left}px`, `${note.place.top}px`];
      [style.width, style.height, style.font, style.boxSizing] = [`${note.box[0]}px`, `${note.box[1]}px`, note.font, 'border-box'];
      style.margin = 0;
      stage.append(element);
      fade(element, [{ opacity: 1 }, { opacity: 0 }], duration);
    }
    element.classList.add('ghost');
    element.setAttribute('aria-hidden', 'true');
    return element;
  }

  /** Ends what is under way in a stage at once. */
  function finish(stage) {
    running.get(stage)?.();
    running.delete(stage);
  }

  /** Lets the new state come out of the captured one, in `duration` ms. */
  function run(stage, notes, duration) {
    if (!notes?.size || calm.matches) return;
    const origin = stage.getBoundingClientRect();
    const moves = [], old = new Map(notes);
    const found = keyed(stage).map((element) => {
      const note = old.get(element.dataset.key);
      old.delete(element.dataset.key);
      const isSame = note && note.element.tagName === element.tagName;
      return [element, isSame ? note : null, isSame && !isShape(element) ? placeOf(element, origin) : null];
    });
    for (const [element, note, place] of found) {
      if (!note && element instanceof SVGElement) veil(element, 0, 1, moves);
      else if (!note) fade(element, [{ opacity: 0 }, { opacity: 1 }], duration);
      else if (isShape(element)) moveShape(element, note, duration, moves);
      else if (element.tagName === 'g') moveGroup(element, note, place, moves);
      else moveBox(element, note, place, duration);
    }
    const pictures = stage.querySelectorAll('svg');
    const ghosts = [...old.values()].map((note) => ghost(stage, pictures, note, duration, moves)).filter(Boolean);
    const began = performance.now();
    let frame = 0;
    const show = (now) => {
      const t = Math.min(1, Math.max(0, (now - began) / duration));
      moves.forEach((set) => set(ease(t)));
      if (t < 1) { frame = requestAnimationFrame(show); return; }
      ghosts.forEach((element) => element.remove());
      running.delete(stage); // there is nothing left to end
    };
    running.set(stage, () => {
      cancelAnimationFrame(frame);
      moves.forEach((set) => set(1));
      ghosts.forEach((element) => element.remove());
      stage.getAnimations({ subtree: true }).forEach((animation) => animation.finish());
    });
    show(began);
  }

  return { capture, run, finish, isCalm: () => calm.matches };
})();
