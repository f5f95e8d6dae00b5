// A recording without an engine: viewer.html?recording=PATH, or a file that the visitor opens. Without a path it is
// the one of which the book tells; with an empty one, none.

import { mount } from './mount.js';

const FIRST = 'samples/preemption.jsonl';
const xray = mount(document.getElementById('xray'));
window.xray = xray; // for a console, and for tests

const wanted = new URLSearchParams(location.search).get('recording') ?? FIRST;
for (const link of document.querySelectorAll('nav a')) {
  if (new URL(link.href).searchParams.get('recording') === wanted) link.setAttribute('aria-current', 'page');
}
if (wanted) {
  const address = new URL(wanted, location.href);
  // A link to this page must not make it read another site.
  if (address.origin === location.origin) {
    const answer = await fetch(address);
    await xray.open(answer.ok ? await answer.text() : '', wanted.split('/').at(-1));
    if (!matchMedia('(prefers-reduced-motion: reduce)').matches && xray.store.records.length) xray.play();
  }
}
