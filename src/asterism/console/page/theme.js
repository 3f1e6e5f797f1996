// Runs before the page is shown, so that it does not flash in the other theme.
"use strict";
try {
  const theme = localStorage.getItem("asterism-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be disabled; the theme is then that of the system.
}
