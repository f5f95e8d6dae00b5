// The map of the labs: what a lab builds on, and what builds on it, stays lit while it is pointed at.
for (const graph of document.querySelectorAll('.labmap .graph')) {
  const arrows = [...graph.querySelectorAll('.arrows path')];
  const boxes = new Map([...graph.querySelectorAll('a')].map((box) => [box.dataset.lab, box]));
  const follow = (lab, from, to, seen = new Set()) => {
    seen.add(lab);
    for (const arrow of arrows.filter((one) => one.dataset[from] === lab)) {
      arrow.classList.add('near');
      follow(arrow.dataset[to], from, to, seen);
    }
    return seen;
  };
  const clear = () => {
    graph.classList.remove('asked');
    for (const lit of graph.querySelectorAll('.near')) lit.classList.remove('near');
  };
  const light = (lab) => {
    clear();
    graph.classList.add('asked');
    for (const key of [...follow(lab, 'to', 'from'), ...follow(lab, 'from', 'to')]) boxes.get(key).classList.add('near');
  };
  for (const [lab, box] of boxes) {
    box.addEventListener('pointerenter', () => light(lab));
    box.addEventListener('focus', () => light(lab));
    box.addEventListener('pointerleave', clear);
    box.addEventListener('blur', clear);
  }
}
// Arrows lead from chapter to chapter: an exploration hangs on a lab's sheet, and none follows the last page.
if (document.querySelector('.exploration')) {
  document.querySelectorAll('.nav-chapters, .mobile-nav-chapters').forEach((arrow) => arrow.remove());
}
document.querySelectorAll('.nav-chapters.next[href*="explore/"], .mobile-nav-chapters.next[href*="explore/"]')
  .forEach((arrow) => arrow.remove());
// A lab's sheet was once a part of its article: what is named there and has moved is found on the sheet.
const sheets = document.querySelectorAll('.to-sheet a');
const named = decodeURIComponent(window.location.hash.slice(1));
if (sheets.length === 1 && named && !named.startsWith('fig-') && !document.getElementById(named)) {
  window.location.replace(`${sheets[0].href}#${named}`);
}
