// The page at `/`: asks for a key where the server wants one, and shows the engine's X-ray.

import { mount } from './xray/mount.js';
import { liveSource } from './xray/source.js';

const KEY = 'yaie-key';
const root = document.baseURI.replace(/web\/$/, '');

/** `fetch`, with the key of this tab; asks for one when the server refuses. */
async function send(path, init = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...init.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const answer = await fetch(new URL(path.replace(/^\//, ''), root), { ...init, headers });
    if (answer.status !== 401) return answer;
    await askForKey(Boolean(key));
  }
}

let asking = null;

function askForKey(wasWrong) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById('key');
    dialog.querySelector('output').textContent = wasWrong ? 'The server does not know this key.' : '';
    dialog.addEventListener('close', () => {
      sessionStorage.setItem(KEY, dialog.querySelector('input').value.trim());
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

const xray = mount(document.getElementById('xray'), liveSource(send));
window.xray = xray; // for a console, and for tests
document.addEventListener('visibilitychange', () => (document.hidden ? xray.disconnect() : xray.connect()));
