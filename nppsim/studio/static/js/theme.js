/* Light, dark or system theme; stored in the browser. */

const KEY = "nppsim.theme";
const CHOICES = ["auto", "light", "dark"];

function chosenTheme() {
  const stored = localStorage.getItem(KEY);
  return CHOICES.includes(stored) ? stored : "auto";
}

export function themeSwitch(button) {
  const label = () => {
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[chosenTheme()];
    button.setAttribute("aria-label", `Theme: ${chosenTheme()}`);
    button.title = `Theme: ${chosenTheme()} (click for the next)`;
  };
  button.addEventListener("click", () => {
    localStorage.setItem(KEY, CHOICES[(CHOICES.indexOf(chosenTheme()) + 1) % CHOICES.length]);
    apply(chosenTheme());
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
