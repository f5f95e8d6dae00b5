// Quizzes: the reader chooses, checks, reads why, and may try again. What was missed is kept in this
// browser, and the review page asks it again. Without scripts each question has its answer folded.
'use strict';

(() => {
  const { html, store } = yaie;

  class Question extends HTMLElement {
    connectedCallback() {
      if (this.button) return;
      this.choices = [...this.querySelectorAll('.choice')];
      this.button = html('button', { type: 'button' }, 'Check');
      this.verdict = html('span', { class: 'verdict', role: 'status' });
      this.querySelector('details').remove();
      this.querySelector('fieldset').append(html('p', { class: 'check' }, this.button, this.verdict));
      this.button.onclick = () => this.check();
      const last = store.get(this.key);
      if (last && !this.closest('yaie-review')) {
        this.verdict.textContent = last.right ? 'You answered this one.' : 'You missed this one last time.';
      }
    }

    get key() { return `quiz:${this.dataset.key}`; }

    check() {
      const chosen = this.choices.find((choice) => choice.querySelector('input').checked);
      if (!chosen) {
        this.verdict.textContent = 'Choose an answer first.';
        return;
      }
      const right = 'right' in chosen.dataset;
      this.choices.forEach((choice) => { choice.querySelector('.why').hidden = choice !== chosen; });
      this.dataset.state = right ? 'right' : 'wrong';
      this.verdict.textContent = right ? 'Right.' : 'Not so. Read why, and try again.';
      store.set(this.key, { right });
      this.dispatchEvent(new CustomEvent('yaie-answer', { bubbles: true, detail: { right } }));
    }
  }
  customElements.define('yaie-question', Question);

  const ASKED = 'yaie-question, yaie-exercise';

  /** The page that shows, of all questions and exercises, those whose last answer was wrong. */
  class Review extends HTMLElement {
    connectedCallback() {
      this.status = this.querySelector('.review-status');
      for (const question of this.querySelectorAll(ASKED)) question.hidden = true;
      this.show();
      this.addEventListener('yaie-answer', () => this.count());
      // What is answered in another tab shows here too.
      addEventListener('storage', () => this.show());
    }

    show() {
      for (const section of this.querySelectorAll('section')) {
        for (const question of section.querySelectorAll(ASKED)) {
          question.hidden &&= this.answered(question)?.right ?? true;
          section.hidden &&= question.hidden;
        }
      }
      this.count();
    }

    answered(question) { return store.get(`quiz:${question.dataset.key}`); }

    count() {
      const all = [...this.querySelectorAll(ASKED)];
      const tried = all.map((question) => this.answered(question)).filter(Boolean);
      const missed = tried.filter(({ right }) => !right).length;
      this.status.textContent = missed
        ? `Of the ${tried.length} questions that you answered, ${missed} went wrong the last time. Here they are again.`
        : `Nothing to review: you answered ${tried.length} of ${all.length} questions, and none is open.`;
    }
  }
  customElements.define('yaie-review', Review);
})();
