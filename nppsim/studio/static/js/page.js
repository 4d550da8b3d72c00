/* Script of the pages that nppsim/studio/page.py writes: creates a player after each data element once it becomes
 * visible. */

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
