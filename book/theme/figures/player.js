// The bar above a stage: play, step back and forth, scrub, speed, a link to this step.
'use strict';

yaie.player = (() => {
  const { html } = yaie;
  const SPEEDS = [['0.5', '½×'], ['1', '1×'], ['2', '2×'], ['4', '4×']];
  const STOPS = 60; // more stops than that are passed several at a time
  const LOOKS = 0.8; // of the time to the next stop, after which that is drawn: tweens are over by then
  const [SLOWEST, FASTEST, WHOLE] = [1300, 220, 18_000]; // ms a stop, and ms for all of them

  /**
   * The bar of a figure, which has `title_`, `last` (index of its last state), `index`, `go(index)`, `place()` (where
   * it stands, in words) and `link()`.
   */
  function player(figure) {
    const button = (words, label, act) => {
      const made = html('button', { type: 'button', 'aria-label': label, title: label }, words);
      made.onclick = act;
      return made;
    };
    const play = button('▶', 'Play', () => toggle());
    play.classList.add('play');
    const back = button('◀', 'Back', () => step(-1));
    const next = button('▶|', 'Next', () => step(1));
    const scrub = html('input', { type: 'range', class: 'scrub', min: 0, step: 1, 'aria-label': `Position: ${figure.title_}` });
    const place = html('span', { class: 'place' });
    const speed = html('select', { 'aria-label': 'Speed' },
      SPEEDS.map(([value, label]) => html('option', { value, selected: value === '1' }, label)));
    const link = button('Link', 'Copy a link to this step', async () => {
      const said = await figure.link();
      link.textContent = said;
      setTimeout(() => { link.textContent = 'Link'; }, 2000);
    });
    link.classList.add('quiet');
    const element = html('div', { class: 'player' }, play, back, next, scrub, place, speed, link);
    let clock = 0;

    const isPlaying = () => clock !== 0;
    const stride = () => Math.max(1, Math.ceil(figure.last / STOPS));
    /** ms from one stop to the next. */
    const pause_ = () => Math.max(FASTEST, Math.min(SLOWEST, WHOLE / Math.max(1, figure.last / stride()))) / Number(speed.value);
    /** The same for one stop, of which its figure may say how many times as long it is shown. */
    const shown = (index) => pause_() * (figure.beat?.(index) ?? 1);

    function pause() {
      clearTimeout(clock);
      clock = 0;
      figure.said.setAttribute('aria-live', 'polite'); // off while a figure plays by itself
      sync();
    }
    const following = () => Math.min(figure.last, figure.index + stride());

    /** Goes on after so many ms; the next state is drawn before, when nothing moves. */
    function wait(ms) {
      clock = setTimeout(() => {
        figure.foresee(following());
        clock = setTimeout(tick, ms * (1 - LOOKS));
      }, ms * LOOKS);
    }
    function tick() {
      figure.go(following(), shown(following()));
      if (figure.index >= figure.last) pause();
      else wait(shown(figure.index));
    }
    function toggle() {
      if (isPlaying()) { pause(); return; }
      const { rests } = figure;
      figure.used();
      if (rests || figure.index >= figure.last) figure.go(0, pause_());
      wait(Math.min(300, pause_()));
      sync();
    }
    function go(index) {
      pause();
      figure.used();
      figure.go(index);
    }
    function step(by) { go(figure.index + by); }
    scrub.oninput = () => go(Number(scrub.value));

    /** Shows where the figure stands. */
    function sync() {
      const words = figure.place();
      [scrub.max, scrub.value] = [figure.last, figure.index];
      scrub.setAttribute('aria-valuetext', words);
      place.textContent = words;
      play.textContent = isPlaying() ? '❚❚' : '▶';
      play.setAttribute('aria-label', isPlaying() ? 'Pause' : 'Play');
      play.title = isPlaying() ? 'Pause (space)' : 'Play (space)';
      const lost = [back, next].includes(document.activeElement);
      back.disabled = figure.index <= 0;
      next.disabled = figure.index >= figure.last;
      if (lost && document.activeElement?.disabled !== false) (next.disabled ? back : next).focus();
    }

    return { element, play, sync, toggle, pause, go, step, isPlaying };
  }

  return player;
})();
