/* Theme of the page (light, dark or that of the system) and colour scheme of levels; stored in the browser. */

const THEME = { store: "nppsim.theme", choices: ["auto", "light", "dark"] };
const COLOURS = "nppsim.colours";

function chosenTheme() {
  const stored = localStorage.getItem(THEME.store);
  return THEME.choices.find((one) => one === stored) ?? "auto";
}

export function themeSwitch(button) {
  const label = () => {
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[chosenTheme()];
    button.setAttribute("aria-label", `Theme: ${chosenTheme()}`);
    button.title = `Theme: ${chosenTheme()} (click for the next)`;
  };
  button.addEventListener("click", () => {
    const { choices } = THEME;
    localStorage.setItem(THEME.store, choices[(choices.indexOf(chosenTheme()) + 1) % choices.length]);
    apply("theme", chosenTheme());
    label();
  });
  apply("theme", chosenTheme());
  label();
}

/** Fill a select element with the colour schemes of colours.css (nppsim/pictures/schemes.py). */
export function coloursSwitch(select) {
  const sheet = [...document.styleSheets].find(({ href }) => href?.endsWith("/colours.css"));
  const names = [...(sheet?.cssRules ?? [])].flatMap(({ cssText }) => /"(\w+)"/.exec(cssText)?.[1] ?? []);
  const stored = localStorage.getItem(COLOURS);
  const chosen = names.find((one) => one === stored) ?? names[0];
  select.append(...names.map((name) => new Option(name, name, false, name === chosen)));
  select.addEventListener("change", () => {
    localStorage.setItem(COLOURS, select.value);
    apply("colours", select.value);
    select.blur(); // the keys belong to the view again
  });
  apply("colours", chosen);
}

function apply(name, value) {
  if (value === "auto") delete document.documentElement.dataset[name];
  else document.documentElement.dataset[name] = value;
  document.dispatchEvent(new Event("themechange"));
}
