// The two kinds of figure: one that steps through what was recorded, one that is computed from its controls.
'use strict';

(() => {
  const { html, Figure } = yaie;
  const MOST_STATES = 48; // of a controlled figure that are drawn to find the tallest

  /** Steps through data.steps, through those of one of data.tracks, or through spec.steps(data). spec.alike: all
      states have one height, and only what is said must be measured. spec.settings(figure): more controls; spec.shown(figure,
      step) then brings them to the step that is shown. spec.together: all tracks are drawn at once. spec.beat(steps, index):
      how many times as long as usual a step is shown in play. */
  function stepped(name, spec) {
    customElements.define(`yaie-${name}`, class extends Figure {
      begin() {
        this.settings.append(...this.tracks(), ...(spec.settings?.(this) ?? []));
        this.settings.hidden = !this.settings.childElementCount;
        // One that plays by itself begins with the first step.
        if (this.asks) this.index = Math.max(0, (this.data.unanswered ?? 1) - 1);
        else if (!('plays' in this.dataset)) this.uncover();
      }

      /** Under its question it shows the first step, or the one that its file names; nothing if that is 0. */
      get hasBefore() { return this.data.unanswered !== 0; }
      /** What is said of that state: a step's own sentence would tell more than is asked. */
      before() { return ''; }

      /** Until it is used it shows the step that its file names, so that the stage is not empty; it plays from the first. */
      uncover() {
        this.index = Math.min(this.last, (this.data.open ?? 1) - 1);
        this.rests = this.index > 0;
      }

      tracks() {
        if (!this.data.tracks || spec.together) return [];
        const options = Object.entries(this.data.tracks).map(([key, track]) =>
          html('option', { value: key }, track.label ?? key));
        this.chosen = html('select', {}, options);
        if (this.data.opens) this.chosen.value = this.data.opens;
        this.chosen.onchange = () => { this.used(); this.go(this.index); };
        return [html('label', {}, `${this.data.tracks_label ?? 'Setting'} `, this.chosen)];
      }

      get track() { return this.chosen ? this.data.tracks[this.chosen.value] : this.data; }
      get steps() { return this.stepsOf(this.track); }
      // Recorded as they are drawn, or made of a recording by the figure.
      stepsOf(track) { return spec.steps ? (track.made ??= spec.steps(track)) : track.steps; }
      get last() { return this.steps.length - 1; }
      place() { return this.steps[this.index].place ?? `step ${this.index + 1} of ${this.steps.length}`; }

      draw(stage, track = this.track, index = this.index) {
        const step = this.stepsOf(track)[index];
        spec.draw(stage, step, track, index, this);
        return step.say;
      }
      drawAt(stage, index) { return this.draw(stage, this.track, index); }
      shown() { spec.shown?.(this, this.steps[this.index]); }
      beat(index) { return spec.beat?.(this.steps, index) ?? 1; }

      states() {
        const tracks = this.chosen ? Object.values(this.data.tracks) : [this.data];
        const longest = (steps) => steps.reduce((most, { say }, at) => (say.length > steps[most].say.length ? at : most), 0);
        const measured = (steps) => (spec.alike ? [longest(steps)] : [...steps.keys()]);
        return tracks.flatMap((track) => measured(this.stepsOf(track)).map((index) => (stage) => this.draw(stage, track, index)));
      }

      /** Shows a step, from 0 on. */
      go(index, duration) {
        this.index = Math.max(0, Math.min(this.last, index));
        this.paint(duration);
      }

      /** Shows other data from now on, say what the reader has typed. */
      restart(data, index = 0) {
        this.data = data;
        this.index = Math.max(0, Math.min(this.last, index));
        this.fit();
      }

      choose({ track }) { if (this.chosen && track in this.data.tracks) this.chosen.value = track; }
      chosenValues() { return this.chosen ? { track: this.chosen.value } : {}; }

      // On paper: the step that the figure's file names, or the last one, in which most has happened.
      rewind() {
        this.kept = this.index;
        this.player.pause();
        this.go((this.data.print ?? this.steps.length) - 1, 0);
      }
      restore() { this.go(this.kept ?? 0, 0); }
    });
  }

  /** Drawn from the values of its controls. One of them is played: spec.plays, else the first range. */
  function controlled(name, spec) {
    customElements.define(`yaie-${name}`, class extends Figure {
      begin() {
        this.controls = spec.controls(this.data);
        const ranges = this.controls.filter(({ options, button }) => !options && !button);
        this.played = this.controls.find((control) => control.name === spec.plays) ?? ranges[0] ?? this.controls[0];
        this.player.element.classList.add('named');
        this.values = { ...this.defaults(), ...(this.asks ? this.data.unanswered : {}) };
        this.index = this.indexOf(this.values);
        this.inputs = this.controls.filter((control) => control !== this.played).map((control) => this.input(control));
        this.settings.append(...this.inputs.map(({ element }) => element));
        this.settings.hidden = !this.inputs.length;
        this.inputs.forEach(({ control, show }) => show(this.values[control.name]));
      }

      /** Under its question it shows the values that its file names, if it names any: often the first ones are the answer. */
      get hasBefore() { return Boolean(this.data.unanswered); }
      /** The names and values of the controls that stand elsewhere than they begin. */
      before() {
        const named = Object.entries(this.data.unanswered ?? {}).map(([key, value]) => {
          const { label, options, format = String } = this.controls.find(({ name: own }) => own === key);
          return `${label}: ${options ? options.find(([option]) => String(option) === String(value))[1] : format(value)}`;
        });
        return named.join('; ').replace(/^./, (letter) => letter.toUpperCase());
      }

      uncover() {
        this.values = this.defaults();
        this.index = this.indexOf(this.values);
        this.inputs.forEach(({ control, show }) => show(this.values[control.name]));
      }

      defaults() {
        return Object.fromEntries(this.controls.map((control) => [control.name, control.value ?? control.options?.[0][0] ?? 0]));
      }

      // The played control, as steps from 0 on.
      get last() {
        const { options, min, max, step } = this.played;
        return options ? options.length - 1 : Math.round((max - min) / step);
      }
      valueAt(index) {
        const { options, min, step } = this.played;
        return options ? options[index][0] : Number((min + index * step).toFixed(6));
      }
      indexOf(values) {
        const { options, min, step, name: key } = this.played;
        return options ? options.findIndex(([value]) => String(value) === String(values[key]))
          : Math.round((values[key] - min) / step);
      }
      place() {
        const { options, label, format = String } = this.played;
        const value = this.valueAt(this.index);
        return `${label}: ${options ? options[this.index][1] : format(value)}`;
      }

      input(control) {
        const set = (value) => {
          this.player.pause();
          this.used();
          this.values[control.name] = value;
          this.update();
        };
        if (control.button) {
          const button = html('button', { type: 'button' }, control.label);
          button.onclick = () => set(this.values[control.name] + 1);
          return { control, element: button, show() {} };
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
        return { control, element: html('label', {}, html('span', {}, control.label), input, shown), show };
      }

      draw(stage, values = this.values) { return spec.draw(stage, values, this.data); }
      drawAt(stage, index) { return this.draw(stage, { ...this.values, [this.played.name]: this.valueAt(index) }); }

      /** The corners of what can be chosen, and all stops of what is played. */
      states() {
        if (spec.tallest) return spec.tallest(this.data).map((values) => (stage) => this.draw(stage, { ...this.defaults(), ...values }));
        const sets = [this.values, this.defaults()];
        const stride = Math.max(1, Math.ceil(this.last / 20));
        for (let index = 0; index <= this.last; index += stride) sets.push({ ...this.values, [this.played.name]: this.valueAt(index) });
        let corners = [this.defaults()];
        for (const { name: key, options, button, min, max } of this.controls) {
          if (button) continue;
          const ends = options ? options.map(([value]) => value) : [min, max];
          sets.push(...ends.map((value) => ({ ...this.defaults(), [key]: value })));
          const more = corners.flatMap((values) => ends.map((value) => ({ ...values, [key]: value })));
          if (more.length <= MOST_STATES) corners = more;
        }
        return [...sets, ...corners].map((values) => (stage) => this.draw(stage, values));
      }

      go(index, duration) {
        this.index = Math.max(0, Math.min(this.last, index));
        this.values[this.played.name] = this.valueAt(this.index);
        this.update(duration);
      }

      update(duration) {
        this.inputs.forEach(({ control, show }) => show(this.values[control.name]));
        this.paint(duration);
      }

      choose(choices) {
        for (const { control: { name: key, options, button, min, max } } of this.inputs) {
          if (!(key in choices)) continue;
          const found = options?.find(([value]) => String(value) === choices[key]);
          const number = Number(choices[key]);
          if (found) [this.values[key]] = found;
          else if (!options && (button || (number >= min && number <= max))) this.values[key] = number;
        }
      }
      chosenValues() {
        const before = this.defaults();
        return Object.fromEntries(Object.entries(this.values).filter(([key, value]) =>
          key !== this.played.name && String(value) !== String(before[key])));
      }

      rewind() {
        this.kept = { ...this.values };
        this.player.pause();
        this.set(this.defaults());
      }
      restore() { if (this.kept) this.set(this.kept); }
      set(values) {
        this.values = { ...values };
        this.index = this.indexOf(this.values);
        this.update(0);
      }
    });
  }

  const kinds = { stepped, controlled };
  yaie.takeOver((kind, name, spec) => kinds[kind](name, spec));
})();
