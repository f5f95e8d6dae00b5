// mdBook's sidebar toggle is a <label> that says whether it is expanded; only a button may say that.
document.getElementById('mdbook-sidebar-toggle')?.setAttribute('role', 'button');
// A listing or a table that scrolls sideways can be reached and scrolled by keyboard.
document.querySelectorAll('pre > code, .table-wrapper').forEach((wide) => {
  if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
});
