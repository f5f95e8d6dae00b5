// mdBook's sidebar toggle is a <label> that says whether it is expanded; only a button may say that.
document.getElementById('mdbook-sidebar-toggle')?.setAttribute('role', 'button');
// A listing, a table, a formula or a picture that scrolls sideways can be reached and scrolled by keyboard.
document.querySelectorAll('pre > code, .table-wrapper, math[display=block], figure:not(.moving)').forEach((wide) => {
  if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
});
