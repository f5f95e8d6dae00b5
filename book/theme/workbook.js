// mdBook's sidebar toggle is a <label> that says whether it is expanded; only a button may say that.
document.getElementById('mdbook-sidebar-toggle')?.setAttribute('role', 'button');
// A listing that scrolls sideways can be reached and scrolled by keyboard.
document.querySelectorAll('pre > code').forEach((code) => {
  if (code.scrollWidth > code.clientWidth) code.tabIndex = 0;
});
