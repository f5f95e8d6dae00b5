// What all figures share: the question before the picture, stepping, controls, captions, printing.
// A figure is <yaie-NAME> around a JSON of { title, data, predict } and a text for readers without scripts.
'use strict';

const yaie = (() => {
  const SVG = 'http://www.w3.org/2000/svg';
  let figures = 0;

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
      if (value === true) element.setAttribute(name, '');
      else if (value !== false && value != null) element.setAttribute(name, value);
    }
    element.append(...children.flat().filter((child) => child != null));
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

  /** Asks `predict` and calls `reveal` once it was answered or waived, now or on an earlier visit. */
  function question(key, predict, reveal) {
    const name = `${key}-${figures}`;
    const verdict = html('p', { class: 'verdict', role: 'status' });
    const entry = predict.choice ? choices(name, predict.choice) : number(predict);
    const check = html('button', { type: 'button' }, 'Check');
    const waive = html('button', { type: 'button', class: 'quiet' }, 'Show without guessing');
    const buttons = html('p', { class: 'buttons' }, check, waive);
    const box = html('fieldset', { class: 'predict' },
      html('legend', {}, 'Predict first: ', fromHtml(predict.ask)), entry.element, buttons, verdict);

    const close = (kept) => {
      store.set(`figure:${key}`, true);
      entry.close();
      buttons.remove();
      reveal(kept);
    };
    check.onclick = () => {
      const judged = entry.judge();
      verdict.replaceChildren(...(judged ? judged.words : ['Choose or type an answer first.']));
      if (judged) close(false);
    };
    waive.onclick = () => {
      verdict.replaceChildren(...entry.answer());
      close(false);
    };
    if (store.get(`figure:${key}`)) {
      verdict.replaceChildren(...entry.answer());
      queueMicrotask(() => close(true));
    }
    return box;
  }

  function choices(name, options) {
    const inputs = options.map((_, index) =>
      html('input', { type: 'radio', name, value: index }));
    const right = options.findIndex((option) => option.right);
    const words = (index) => [fromHtml(options[index].text), '. ', fromHtml(options[index].why ?? '')];
    return {
      element: html('div', { class: 'choices' }, inputs.map((input, index) =>
        html('label', {}, input, ' ', html('span', {}, fromHtml(options[index].text))))),
      judge() {
        const chosen = inputs.findIndex((input) => input.checked);
        if (chosen < 0) return null;
        if (chosen === right) return { words: ['Right: ', ...words(right)] };
        return { words: ['Not so. You said: ', ...words(chosen), ' The answer: ', ...words(right)] };
      },
      answer: () => ['The answer: ', ...words(right)],
      close: () => inputs.forEach((input) => { input.disabled = true; }),
    };
  }

  function number({ number: value, tolerance = 0, unit = '', why = '' }) {
    const input = html('input', { type: 'number', step: 'any', 'aria-label': `Your answer${unit && `, in ${unit}`}` });
    const words = () => [`${value} ${unit}`.trim(), '. ', fromHtml(why)];
    return {
      element: html('div', { class: 'choices' }, html('span', {}, input, ` ${unit}`)),
      judge() {
        if (input.value === '') return null;
        const right = Math.abs(Number(input.value) - value) <= tolerance;
        return { words: [right ? 'Right: ' : `Not so. You said ${input.value}. The answer: `, ...words()] };
      },
      answer: () => ['The answer: ', ...words()],
      close: () => { input.disabled = true; },
    };
  }

  // The preprocessor has rendered these texts from the figure's file: they are ours, not a visitor's.
  function fromHtml(text) {
    const template = document.createElement('template');
    template.innerHTML = text;
    return template.content;
  }

  class Figure extends HTMLElement {
    connectedCallback() {
      if (this.stage) return;
      figures += 1;
      const { title, data, predict } = JSON.parse(this.querySelector('script').textContent);
      this.title_ = title;
      this.data = data;
      this.stage = html('div', { class: 'stage' });
      this.said = html('p', { class: 'said', 'aria-live': 'polite' });
      this.panel = html('div', { class: 'panel', role: 'group', 'aria-label': `Controls: ${title}` });
      this.panel.hidden = Boolean(predict);
      this.replaceChildren(this.stage, this.said, this.panel);
      if (predict) this.prepend(question(this.dataset.name, predict, (kept) => this.reveal(kept)));
      this.begin();
      new ResizeObserver(() => this.letScroll()).observe(this.stage);
      addEventListener('beforeprint', () => this.rewind());
      addEventListener('afterprint', () => this.restore());
    }

    reveal(kept) {
      this.panel.hidden = false;
      if (!kept) this.panel.querySelector('button:not([disabled]), input, select')?.focus();
    }

    paint(draw) {
      this.stage.replaceChildren();
      delete this.stage.dataset.wide;
      const said = draw(this.stage);
      this.stage.style.setProperty('--wide', `${this.stage.dataset.wide ?? 0}px`);
      if (this.said.textContent !== said) this.said.textContent = said;
      this.letScroll();
    }

    // What scrolls sideways must be reachable by keyboard, and nothing else.
    letScroll() {
      const scrolls = this.stage.scrollWidth > this.stage.clientWidth;
      const attributes = { tabindex: 0, role: 'group', 'aria-label': `${this.title_}: scrolls sideways` };
      for (const [name, value] of Object.entries(attributes)) {
        if (scrolls) this.stage.setAttribute(name, value);
        else this.stage.removeAttribute(name);
      }
    }
  }

  /** Defines <yaie-NAME>, which steps through data.steps, or through those of one of data.tracks. */
  function stepped(name, spec) {
    customElements.define(`yaie-${name}`, class extends Figure {
      begin() {
        this.index = 0;
        this.back = html('button', { type: 'button' }, '◀ Back');
        this.next = html('button', { type: 'button' }, 'Next ▶');
        this.place = html('span', { class: 'place' });
        this.back.onclick = () => this.go(this.index - 1);
        this.next.onclick = () => this.go(this.index + 1);
        this.panel.append(...this.tracks(), this.back, this.next, this.place);
        this.addEventListener('keydown', (event) => this.key(event));
        this.go(0);
      }

      tracks() {
        if (!this.data.tracks) return [];
        const options = Object.entries(this.data.tracks).map(([key, track]) =>
          html('option', { value: key }, track.label ?? key));
        this.chosen = html('select', {}, options);
        this.chosen.onchange = () => this.go(this.index);
        return [html('label', {}, `${this.data.tracks_label ?? 'Setting'} `, this.chosen)];
      }

      get steps() {
        return this.chosen ? this.data.tracks[this.chosen.value].steps : this.data.steps;
      }

      key(event) {
        const last = this.steps.length - 1;
        const goal = { ArrowRight: this.index + 1, ArrowLeft: this.index - 1, Home: 0, End: last };
        const typing = event.target.matches('input, select') || event.target === this.stage;
        if (this.panel.hidden || typing || !(event.key in goal)) return;
        event.preventDefault();
        event.stopPropagation(); // mdBook turns the page with these keys
        this.go(goal[event.key]);
      }

      go(index) {
        const last = this.steps.length - 1;
        this.index = Math.max(0, Math.min(last, index));
        const step = this.steps[this.index];
        this.paint((stage) => {
          const track = this.chosen ? this.data.tracks[this.chosen.value] : this.data;
          spec.draw(stage, step, track, this.index);
          return step.say;
        });
        this.place.textContent = `step ${this.index + 1} of ${last + 1}`;
        const lost = [this.back, this.next].includes(document.activeElement);
        this.back.disabled = this.index === 0;
        this.next.disabled = this.index === last;
        if (lost && document.activeElement?.disabled !== false) {
          (this.next.disabled ? this.back : this.next).focus();
        }
      }

      rewind() { this.kept = this.index; this.go(0); }
      restore() { this.go(this.kept ?? 0); }
    });
  }

  /** Defines <yaie-NAME>, drawn anew from the values of its controls whenever one changes. */
  function controlled(name, spec) {
    customElements.define(`yaie-${name}`, class extends Figure {
      begin() {
        this.controls = spec.controls(this.data);
        this.values = this.defaults();
        this.inputs = this.controls.map((control) => this.input(control));
        this.panel.append(...this.inputs.map(({ element }) => element));
        this.update();
      }

      defaults() {
        return Object.fromEntries(this.controls.map(({ name, value }) => [name, value ?? 0]));
      }

      input(control) {
        const set = (value) => { this.values[control.name] = value; this.update(); };
        if (control.button) {
          const button = html('button', { type: 'button' }, control.label);
          button.onclick = () => set(this.values[control.name] + 1);
          return { element: button, show() {} };
        }
        const shown = html('output', {});
        const format = control.format ?? String;
        let input;
        if (control.options) {
          input = html('select', {}, control.options.map(([value, label]) => html('option', { value }, label)));
          input.onchange = () => set(input.value);
        } else {
          const { min, max, step } = control;
          input = html('input', { type: 'range', min, max, step });
          input.oninput = () => set(Number(input.value));
        }
        const show = (value) => {
          input.value = value;
          if (!control.options) {
            shown.textContent = format(value);
            input.setAttribute('aria-valuetext', format(value));
          }
        };
        return { element: html('label', {}, html('span', {}, control.label), input, shown), show };
      }

      update() {
        this.inputs.forEach(({ show }, index) => show(this.values[this.controls[index].name]));
        this.paint((stage) => spec.draw(stage, this.values, this.data));
      }

      rewind() { this.kept = this.values; this.values = this.defaults(); this.update(); }
      restore() { this.values = this.kept ?? this.values; this.update(); }
    });
  }

  return { svg, html, store, fromHtml, stepped, controlled };
})();
