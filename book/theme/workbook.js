// mdBook's sidebar toggle is a <label> that says whether it is expanded; only a button may say that.
document.getElementById('mdbook-sidebar-toggle')?.setAttribute('role', 'button');
// A listing, a table, a formula or a picture that scrolls sideways can be reached and scrolled by keyboard.
document.querySelectorAll('pre > code, .table-wrapper, math[display=block], figure:not(.moving)').forEach((wide) => {
  if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
});
// The parts of the manual are folded in the sidebar, except that of the page: the course stands out.
for (const title of document.querySelectorAll('#mdbook-sidebar .chapter > .part-title')) {
  const name = title.textContent.trim(), pages = [];
  if (!['Using the engine', 'Reference', 'Evidence'].includes(name)) continue;
  for (let next = title.nextElementSibling; next && !next.matches('.part-title') && !next.querySelector('a[href$="review.html"]'); next = next.nextElementSibling) pages.push(next);
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'part-fold';
  button.textContent = name;
  const show = (isShown) => {
    button.setAttribute('aria-expanded', isShown);
    pages.forEach((page) => { page.hidden = !isShown; });
  };
  button.onclick = () => show(button.getAttribute('aria-expanded') !== 'true');
  title.replaceChildren(button);
  show(pages.some((page) => page.querySelector('a.active')));
}
