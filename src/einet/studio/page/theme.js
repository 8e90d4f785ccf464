// Light or dark: as the system has it, unless one was chosen here.

const KEY = "einet-theme";

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function startTheme(toggle) {
  const chosen = localStorage.getItem(KEY);
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;

  function draw() {
    toggle.textContent = isDark() ? "☀" : "☾";
    toggle.title = isDark() ? "Light" : "Dark";
    toggle.setAttribute("aria-label", isDark() ? "Change to light" : "Change to dark");
  }

  toggle.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    localStorage.setItem(KEY, document.documentElement.dataset.theme);
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}
