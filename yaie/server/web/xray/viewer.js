// A recording without an engine: viewer.html?recording=PATH, or a file that the visitor opens.

import { mount } from './mount.js';

const xray = mount(document.getElementById('xray'));
window.xray = xray; // for a console, and for tests

const wanted = new URLSearchParams(location.search).get('recording');
if (wanted) {
  const address = new URL(wanted, location.href);
  // A link to this page must not make it read another site.
  if (address.origin === location.origin) {
    const answer = await fetch(address);
    xray.open(answer.ok ? await answer.text() : '', wanted.split('/').at(-1));
  }
}
