// The frame of every figure: the question first, then a bar to play with, what is said, and a stage of fixed height.
// Until the question is answered the stage shows how things are before (see kinds.js), without the bar and the sentence,
// which would tell the rest.
// A figure is <yaie-NAME> around a JSON of { title, data, predict, code } and a text for readers without scripts.
'use strict';

(() => {
  const { html } = yaie;
  const { tallest } = yaie.stage;
  const TWEEN = 450; // ms, at most
  const TWEENED = 0.7; // of the time to the next stop
  const isCalm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

  class Figure extends HTMLElement {
    connectedCallback() {
      if (this.stage) return;
      const { title, data, predict, code } = JSON.parse(this.querySelector('script').textContent);
      this.title_ = title;
      this.data = data;
      this.index = 0;
      this.stage = html('div', { class: 'stage', tabindex: 0, role: 'group' });
      this.said = html('p', { class: 'said', 'aria-live': 'polite' });
      this.player = yaie.player(this);
      this.settings = html('div', { class: 'settings' });
      this.panel = html('div', { class: 'panel', role: 'group', 'aria-label': `Controls: ${title}` },
        this.player.element, this.settings);
      this.replaceChildren(this.panel, this.said, this.stage);
      this.asks = Boolean(predict);
      if (predict) {
        this.question = yaie.question(this.dataset.name, predict, (kept) => this.reveal(kept));
        this.prepend(this.question.element);
      }
      this.things = yaie.things(this, code);
      this.append(this.things.told);
      this.begin();
      this.cover();
      this.addEventListener('keydown', (event) => this.pressed(event));
      this.watch();
    }

    /** Redraws for another width, keeps the height, stops what is out of sight, rewinds for paper. */
    watch() {
      // The first drawing is for the first width, once the page is laid out: to ask for it here would lay out the whole
      // page for each of its figures.
      const sized = new ResizeObserver((entries) => {
        const width = entries.filter(({ target }) => target === this.stage).map(({ contentRect }) => Math.round(contentRect.width))[0];
        if (width && width !== this.width) this.fit(width);
        // A state that was not foreseen is taller: from now on all are. In a window without width all words are below each other.
        else if (this.measured && this.stage.clientWidth) this.keep({ stage: this.stage.offsetHeight, said: this.said.offsetHeight });
      });
      [this.stage, this.said].forEach((element) => sized.observe(element));
      new IntersectionObserver(([entry]) => {
        if (entry.isIntersecting) { this.measure(); this.playsByItself(); }
        else if (this.player.isPlaying()) this.player.pause();
      }, { rootMargin: '400px' }).observe(this);
      addEventListener('hashchange', () => this.open());
      addEventListener('beforeprint', () => { this.isPrinted = true; this.cover(); this.rewind(); });
      addEventListener('afterprint', () => { this.isPrinted = false; this.restore(); this.cover(); });
      this.open();
    }

    /** The first page's scene begins once it is seen, if motion is welcome and no step was asked for. */
    playsByItself() {
      if (!('plays' in this.dataset) || this.index > 0) return;
      delete this.dataset.plays;
      if (isCalm()) return;
      this.said.setAttribute('aria-live', 'off'); // what nobody asked for is not read out
      this.player.toggle();
    }

    /** Whether what would tell the answer waits for it. Where motion is to be little, nothing appears later but the bar;
        on paper all is seen. */
    isCovered() { return this.asks && !this.isPrinted && !isCalm(); }

    /** The bar comes with the answer, and so does what is said; the stage too, of a figure that has nothing to show before. */
    cover() {
      this.panel.hidden = this.asks;
      this.said.hidden = this.isCovered() && !this.before();
      this.stage.hidden = this.isCovered() && !this.hasBefore;
      const keys = 'Arrow keys step, space plays, up and down light one thing after the other.';
      this.stage.setAttribute('aria-label', this.asks ? `${this.title_}, before` : `${this.title_}. ${keys}`);
    }

    /** The question is answered. kept: not here and now; what is not yet drawn then is drawn when it comes into sight. */
    reveal(kept) {
      this.asks = false;
      this.cover();
      this.uncover(); // in the kinds: the state that the figure rests in
      if (this.width) this.paint(kept ? 0 : TWEEN);
      if (!kept || this.width) this.measure();
      if (!kept) this.player.play.focus({ preventScroll: true });
    }

    /** The first use folds the answer; the bar stays under the pointer. */
    used() {
      this.rests = false;
      if (this.question?.element.dataset.open !== 'true') return;
      const before = this.panel.getBoundingClientRect().top;
      this.question.fold();
      scrollBy({ top: this.panel.getBoundingClientRect().top - before, behavior: 'instant' });
    }

    /** What the page's address asks for. */
    open() {
      const asked = yaie.link.asked(this.dataset.name);
      if (!asked) return;
      this.question?.waive();
      this.rests = false;
      this.choose(asked.choices);
      this.measure();
      this.go(asked.index);
      const show = () => this.closest('figure')?.scrollIntoView({ block: 'start', behavior: 'instant' });
      show();
      if (document.readyState !== 'complete') addEventListener('load', show, { once: true });
    }

    async link() {
      return yaie.link.copy(yaie.link.to(this.dataset.name, this.index, this.chosenValues()));
    }

    /** A state drawn beside the page. draw(stage): fills an empty stage and returns what is said. */
    drawn(draw) {
      const stage = html('div', { 'data-room': this.width });
      return { stage, said: draw(stage) };
    }

    /** What a drawing of the state at `index` depends on. */
    key(index) { return JSON.stringify([index, this.width, this.chosenValues()]); }

    /** Draws the state that is to be shown next, in a frame of its own. */
    foresee(index) {
      const { data } = this;
      this.ahead = { key: this.key(index), data, ...this.drawn((stage) => this.drawAt(stage, index)) };
    }

    /** Shows a state. duration: ms that the tween from the last one may take; 0 for none. */
    paint(duration = TWEEN) {
      this.width ||= this.stage.clientWidth;
      const { ahead } = this;
      const isForeseen = duration && ahead?.data === this.data && ahead.key === this.key(this.index);
      const { stage, said } = isForeseen ? ahead : this.drawn((empty) => this.draw(empty));
      this.ahead = null;
      const notes = duration ? yaie.tween.capture(this.stage) : null;
      yaie.tween.finish(this.stage);
      this.stage.dataset.room = this.width;
      this.stage.style.setProperty('--wide', `${stage.dataset.wide ?? 0}px`);
      yaie.renew(this.stage, stage);
      const words = this.isCovered() ? this.before() : said;
      if (this.said.textContent !== words) this.said.textContent = words;
      this.player.sync();
      this.shown?.();
      if (notes) yaie.tween.run(this.stage, notes, Math.min(TWEEN, duration * TWEENED));
      this.things.redrawn();
    }

    keep({ stage, said }) {
      const most = (element, height) => {
        const kept = Math.max(height, parseFloat(element.style.minHeight) || 0);
        element.style.minHeight = `${kept}px`;
      };
      most(this.stage, stage);
      most(this.said, said);
    }

    /** Takes the height of the tallest state, once for each width and not below an open question. */
    measure() {
      if (this.measured || !this.stage.clientWidth || this.asks) return;
      if (!this.width) this.paint(0);
      this.measured = true;
      this.things.find();
      this.keep(tallest(this, this.states()));
    }

    /** Draws and measures anew, for another width or other data. */
    fit(width = this.width) {
      this.width = width;
      this.stage.style.minHeight = this.said.style.minHeight = '';
      const again = this.measured;
      this.measured = false;
      this.paint(0);
      if (again) this.measure();
    }

    pressed(event) {
      const { target, key } = event;
      const isArrow = /^(Arrow|Home|End)/.test(key);
      if (isArrow) event.stopPropagation(); // mdBook turns the page with these keys
      if (this.panel.hidden || event.ctrlKey || event.metaKey || event.altKey) return;
      const plays = key === ' ' && !target.matches('button, select, input:not([type=range]), summary');
      const goal = { ArrowRight: this.index + 1, ArrowLeft: this.index - 1, Home: 0, End: this.last }[key];
      const walks = { ArrowDown: 1, ArrowUp: -1 }[key];
      if (plays) this.player.toggle();
      else if (walks && target === this.stage) { if (!this.things.walk(walks)) return; }
      else if (goal !== undefined && !target.matches('input, select')) this.player.go(goal);
      else return;
      event.preventDefault();
      event.stopPropagation();
    }
  }

  yaie.Figure = Figure;
})();
