// Light, dark, or as the system has it; remembered in this browser.

const PLACE = "orderlane.theme";
const NEXT = { system: "light", light: "dark", dark: "system" };

/** Have *button* change it. */
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
