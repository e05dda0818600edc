// Theme: light, dark or system; stored in this browser.

const PLACE = "orderlane.theme";
const NEXT = { system: "light", light: "dark", dark: "system" };

/** Let *button* switch the theme. */
export function themed(button) {
  let theme = localStorage.getItem(PLACE);
  if (!(theme in NEXT)) theme = "system";

  function show() {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  }

  button.addEventListener("click", () => {
    theme = NEXT[theme];
    localStorage.setItem(PLACE, theme);
    show();
  });
  show();
}
