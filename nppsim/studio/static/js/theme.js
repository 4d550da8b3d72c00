/* Light, dark or system theme; stored in the browser. */

const KEY = "nppsim.theme";
const CHOICES = ["auto", "light", "dark"];

/** What was chosen: "auto", "light" or "dark". */
export function chosenTheme() {
  const stored = localStorage.getItem(KEY);
  return CHOICES.includes(stored) ? stored : "auto";
}

/** Use a theme from now on. */
export function useTheme(theme) {
  localStorage.setItem(KEY, theme);
  apply(theme);
}

/** Let a button switch between the themes, from what was chosen before. */
export function themeSwitch(button) {
  const label = () => {
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[chosenTheme()];
    button.setAttribute("aria-label", `Theme: ${chosenTheme()}`);
    button.title = `Theme: ${chosenTheme()} (click for the next)`;
  };
  button.addEventListener("click", () => {
    useTheme(CHOICES[(CHOICES.indexOf(chosenTheme()) + 1) % CHOICES.length]);
    label();
  });
  apply(chosenTheme());
  label();
}

function apply(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event("themechange"));
}
