// The page at `/`: chat on one side, the engine's X-ray on the other. Asks for a key where the server wants one.

import { mountChat } from './chat/mount.js';
import { mountScenarios } from './scenarios.js';
import { storage } from './storage.js';
import { mount } from './xray/mount.js';
import { liveSource } from './xray/source.js';
import { setText } from './xray/dom.js';

const KEY = 'yaie-key';
const THEME = 'yaie-theme';
const root = document.baseURI.replace(/web\/$/, '');
const byId = (id) => document.getElementById(id);
const ofBrowser = storage('localStorage');
const ofTab = storage('sessionStorage');

/** `fetch`, with the key of this tab; asks for one when the server refuses. */
async function send(path, init = {}) {
  for (;;) {
    const key = ofTab.get(KEY);
    const headers = { ...init.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const answer = await fetch(new URL(path.replace(/^\//, ''), root), { ...init, headers });
    if (answer.status !== 401) return answer;
    // Another request may have been given the key meanwhile.
    if (ofTab.get(KEY) === key) await askForKey(Boolean(key));
  }
}

let asking = null;

function askForKey(wasWrong) {
  asking ??= new Promise((resolve) => {
    const dialog = byId('key');
    dialog.querySelector('output').textContent = wasWrong ? 'The server does not know this key.' : '';
    dialog.addEventListener('close', () => {
      ofTab.set(KEY, dialog.querySelector('input').value.trim());
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

/** The system's theme, or the other one. */
function themeButton(button) {
  const system = matchMedia('(prefers-color-scheme: dark)');
  const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? 'dark' : 'light')) === 'dark';
  const draw = () => setText(button, isDark() ? 'Light' : 'Dark');
  const kept = ofBrowser.get(THEME);
  if (kept) document.documentElement.dataset.theme = kept;
  button.setAttribute('aria-label', 'Other colours');
  button.addEventListener('click', () => {
    document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
    ofBrowser.set(THEME, document.documentElement.dataset.theme);
    draw();
  });
  system.addEventListener('change', draw);
  draw();
}

/** Which of the two is seen where there is no room for both. */
function show(view) {
  document.body.dataset.view = view;
  for (const name of ['chat', 'xray']) byId(`show-${name}`).setAttribute('aria-pressed', String(name === view));
}

themeButton(byId('theme'));
byId('show-chat').addEventListener('click', () => show('chat'));
byId('show-xray').addEventListener('click', () => show('xray'));

const xray = mount(byId('xray'), liveSource(send));
const chat = mountChat(byId('chat'), {
  send, address: root.replace(/\/$/, ''), hasKey: () => Boolean(ofTab.get(KEY)), kept: ofBrowser,
  named: (model) => setText(byId('model'), model),
});
const scenarios = mountScenarios(byId('scenarios'), { send, xray });
Object.assign(window, { xray, chat, scenarios }); // for a console, and for tests
document.addEventListener('visibilitychange', () => (document.hidden ? xray.disconnect() : xray.connect()));
