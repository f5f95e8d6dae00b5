// Elements without a framework. book/theme/figures/base.js has the same two functions for classic scripts.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** An HTML element; attributes that begin with `on` are listeners. */
export const html = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/** Sets the text of an element where it differs: an unchanged one is neither laid out nor announced anew. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Makes `elements` the children of `parent`. Those that stay are not taken out: they would lose the keyboard. */
export function arrange(parent, elements) {
  const stays = new Set(elements);
  for (const child of [...parent.childNodes]) if (!stays.has(child)) child.remove();
  elements.forEach((element, index) => {
    if (parent.childNodes[index] !== element) parent.insertBefore(element, parent.childNodes[index] ?? null);
  });
}

/**
 * A canvas as wide as its box, sharp on every screen.
 * @param {HTMLCanvasElement} canvas @param {number} height in CSS pixels
 * @returns {{context: CanvasRenderingContext2D, width: number}} cleared, one unit a CSS pixel
 */
export function sized(canvas, height) {
  const width = Math.floor(canvas.parentElement.clientWidth);
  const ratio = window.devicePixelRatio || 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width };
}
