// The question before a figure. Once it is answered, the choices give way to the verdict, and with the first use of
// the figure the verdict folds to one line. On a later visit it is one line from the beginning. A reader who wants no
// questions before figures says so once; beside any answer they can be had back.
'use strict';

yaie.question = (() => {
  const { html, store, fromHtml } = yaie;
  const ALL = 'figures:shown'; // kept in this browser, and the event that says so to a page's figures
  let asked = 0;

  /** An answer and its reason, which is hidden when the answer is folded to one line. */
  const reasoned = (text, why = '') => {
    const end = /[.?!]$/.test(text.replace(/<[^>]+>/g, '').trim()) ? ' ' : '. ';
    return [fromHtml(text), html('span', { class: 'reason' }, end, fromHtml(why))];
  };

  function choices(options) {
    asked += 1;
    const inputs = options.map((_, index) =>
      html('input', { type: 'radio', name: `predict-${asked}`, value: index }));
    const right = options.findIndex((option) => option.right);
    const words = (index) => reasoned(options[index].text, options[index].why);
    return {
      element: html('div', { class: 'choices' }, inputs.map((input, index) =>
        html('label', {}, input, ' ', html('span', {}, fromHtml(options[index].text))))),
      judge() {
        const chosen = inputs.findIndex((input) => input.checked);
        if (chosen < 0) return null;
        if (chosen === right) return { mark: 'Right: ', words: words(right) };
        return { mark: 'Not so. ', words: ['You said: ', ...words(chosen), ' The answer: ', ...words(right)] };
      },
      answer: () => ({ mark: 'The answer: ', words: words(right) }),
    };
  }

  function number({ number: value, tolerance = 0, unit = '', why = '' }) {
    const input = html('input', { type: 'number', step: 'any', 'aria-label': `Your answer${unit && `, in ${unit}`}` });
    const words = () => reasoned(`${value} ${unit}`.trim().replace(' %', '%'), why);
    return {
      element: html('div', { class: 'choices' }, html('span', {}, input, ` ${unit}`)),
      judge() {
        if (input.value === '') return null;
        const right = Math.abs(Number(input.value) - value) <= tolerance;
        return right ? { mark: 'Right: ', words: words() }
          : { mark: 'Not so. ', words: [`You said ${input.value}. The answer: `, ...words()] };
      },
      answer: () => ({ mark: 'The answer: ', words: words() }),
    };
  }

  /**
   * Asks `predict`, and calls reveal(kept) once it was answered or waived; kept: on an earlier visit.
   * Returns { element, waive(), fold() }.
   */
  function question(key, predict, reveal) {
    const entry = predict.choice ? choices(predict.choice) : number(predict);
    const verdict = html('span', { class: 'verdict', role: 'status' });
    const check = html('button', { type: 'button' }, 'Check');
    const waive = html('button', { type: 'button', class: 'quiet' }, 'Show without guessing');
    const never = html('button', { type: 'button', class: 'quiet' }, 'Show all figures');
    const again = html('button', { type: 'button', class: 'quiet reason' }, 'Ask before figures again');
    const ask = html('fieldset', {}, html('legend', {}, 'Predict first: ', fromHtml(predict.ask)),
      entry.element, html('p', { class: 'buttons' }, check, waive, never));
    const fold = html('button', { type: 'button', class: 'fold', hidden: true });
    const words = html('p', { class: 'words' }, fold, verdict);
    const element = html('div', { class: 'predict' }, ask, words);

    // One line, cut where it ends; the button opens and folds it.
    const setOpen = (open) => {
      element.dataset.open = open;
      fold.textContent = open ? '▾' : '▸';
      fold.setAttribute('aria-expanded', open);
      fold.setAttribute('aria-label', open ? 'Fold the answer to one line' : 'Show the question and its answer');
    };
    fold.onclick = () => setOpen(element.dataset.open !== 'true');

    function close({ mark, words: said }, kept, isOnlyShown = false) {
      if (!isOnlyShown) store.set(`figure:${key}`, true);
      verdict.replaceChildren(html('b', {}, mark), ...said);
      ask.replaceWith(html('p', { class: 'asked' }, 'Predict first: ', fromHtml(predict.ask)));
      element.classList.add('answered');
      fold.hidden = false;
      if (isOnlyShown) words.append(again);
      setOpen(!kept);
      reveal(kept);
    }
    const isAnswered = () => element.classList.contains('answered');
    const show = () => { if (!isAnswered()) close(entry.answer(), true, true); };
    never.onclick = () => {
      store.set(ALL, true);
      close(entry.answer(), false, true);
      dispatchEvent(new Event(ALL));
    };
    again.onclick = () => { store.set(ALL, false); again.replaceWith('From the next page on.'); };
    addEventListener(ALL, show);
    check.onclick = () => {
      const judged = entry.judge();
      if (judged) close(judged, false);
      else verdict.replaceChildren('Choose or type an answer first.');
    };
    waive.onclick = () => close(entry.answer(), false);
    if (store.get(`figure:${key}`)) queueMicrotask(() => { if (!isAnswered()) close(entry.answer(), true); });
    else if (store.get(ALL)) queueMicrotask(show);
    return {
      element,
      waive() { if (!isAnswered()) close(entry.answer(), true); },
      fold() { if (isAnswered() && element.dataset.open === 'true') setOpen(false); },
    };
  }

  return question;
})();
