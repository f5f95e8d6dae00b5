// Exercises: the reader types a number, with a unit if they like, and learns how far off it is. A wrong answer that
// others give too is explained. Without scripts the worked solution is folded below the question.
'use strict';

(() => {
  const { html, store } = yaie;
  const TIMES = { k: 1e3, m: 1e6, g: 1e9, b: 1e9, bn: 1e9, t: 1e12 };
  let made = 0;

  /** "1.2k tokens/s" as a number in the unit of the answer; NaN if it is no number, null if the unit is not known. */
  function read(text, units) {
    const found = /^([-+]?[\d.,\s_']*\d(?:e[-+]?\d+)?)\s*(.*)$/i.exec(text.trim().replaceAll('−', '-'));
    if (!found) return NaN;
    const digits = found[1].replace(/[\s_']/g, '');
    // A comma before three digits separates thousands; a single other one is a decimal comma.
    const plain = /^[-+]?\d{1,3}(,\d{3})+(\.\d+)?$/.test(digits) ? digits.replaceAll(',', '') : digits.replace(',', '.');
    const value = Number(plain);
    const unit = found[2].toLowerCase().replace(/\s+/g, '').replace('μ', 'µ').replace(/persecond$/, '/s');
    if (!unit) return value;
    if (unit in units) return value * units[unit];
    const [, letter, rest] = /^(bn|[kmgbt])(.*)$/.exec(unit) ?? [];
    if (letter && (!rest || rest in units)) return value * TIMES[letter] * (rest ? units[rest] : scale(units));
    return null;
  }

  /** A bare "40G" is 40 · 10⁹ bytes where the answer is in bytes, 40 · 10⁹ of its unit elsewhere. */
  const scale = (units) => units.b ?? units['b/s'] ?? units.flop ?? units['flop/s'] ?? 1;

  function farOff(given, answer) {
    const ratio = given / answer;
    if (!(ratio > 0)) return 'It has the wrong sign, or is zero.';
    const way = ratio > 1 ? 'too large' : 'too small';
    const times = Math.max(ratio, 1 / ratio);
    if (times >= 1.5) return `It is ${times >= 100 ? Math.round(times).toLocaleString('en') : times.toPrecision(2)} times ${way}.`;
    return `It is ${(100 * Math.abs(ratio - 1)).toPrecision(2)}% ${way}.`;
  }

  class Exercise extends HTMLElement {
    connectedCallback() {
      if (this.input) return;
      const { unit } = this.dataset;
      const label = `Your answer, in ${unit}`;
      made += 1;
      this.input = html('input', { type: 'text', inputmode: 'decimal', autocomplete: 'off', spellcheck: 'false', id: `exercise-${made}`, size: 14 });
      this.button = html('button', { type: 'button' }, 'Check');
      this.verdict = html('span', { class: 'verdict', role: 'status', 'aria-live': 'polite' });
      this.slips = [...this.querySelectorAll('[data-slip]')];
      this.details = this.querySelector('details');
      this.querySelector('legend').after(html('p', { class: 'check' },
        html('label', { for: this.input.id }, label), ' ', this.input, ' ', this.button, this.verdict));
      this.button.onclick = () => this.check();
      this.input.onkeydown = (event) => { if (event.key === 'Enter') this.check(); };
      const last = store.get(this.key);
      if (last && !this.closest('yaie-review')) {
        this.verdict.textContent = last.right ? 'You solved this one.' : 'Not solved yet.';
      }
    }

    get key() { return `quiz:${this.dataset.key}`; }

    get units() {
      return Object.fromEntries(this.dataset.units.split(' ').map((one) => {
        const at = one.lastIndexOf('=');
        return [one.slice(0, at), Number(one.slice(at + 1))];
      }));
    }

    check() {
      const given = read(this.input.value, this.units);
      for (const slip of this.slips) slip.hidden = true;
      delete this.dataset.state;
      if (given === null || Number.isNaN(given)) {
        this.verdict.textContent = given === null ? `That unit does not fit. Answer in ${this.dataset.unit}.` : 'Type a number first.';
        return;
      }
      const answer = Number(this.dataset.answer);
      const within = Number(this.dataset.within);
      const near = (value) => Math.abs(given - value) <= Math.abs(within * value) + 1e-12;
      const right = near(answer);
      this.dataset.state = right ? 'right' : 'wrong';
      const slip = right ? null : this.slips.find((one) => near(Number(one.dataset.slip)));
      if (slip) slip.hidden = false;
      this.verdict.textContent = right ? 'Right.' : `Not so. ${farOff(given, answer)}`;
      if (right) this.details.open = true;
      store.set(this.key, { right });
      this.dispatchEvent(new CustomEvent('yaie-answer', { bubbles: true, detail: { right } }));
    }
  }
  customElements.define('yaie-exercise', Exercise);
  yaie.exercise = { read, farOff };
})();
