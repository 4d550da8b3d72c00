/* A page of players, written by nppsim/studio/page.py: each is placed at its data and created when it first becomes visible. */

import { element } from "./elements.js";
import { Player } from "./player.js";

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    new Player(target, JSON.parse(target.previousElementSibling.textContent));
  }
});
for (const data of document.querySelectorAll("script.runs")) {
  const root = element("div", { class: "player" });
  data.after(root);
  seen.observe(root);
}
