/* View "Episode": the five levels of an episode in one go, with one clock.  After a death, the level restarts with the
 * clock that it began with.
 */

import { loadLevel } from "./engine.js";
import { episodeLevels } from "./library.js";
import { Play } from "./play.js";
import { best as bestRuns } from "./store.js";

const STORE = "nppsim.episode"; // prefix; the rest is the episode's id

/** The view; see app.js.  code: id of the episode, such as "S-C-12".  After a reload, the episode goes on with the
 *  level that was played. */
export async function show(root, studio, code) {
  const levels = await episodeLevels(code);
  const key = `${STORE}.${code}`;
  /** @type {Play | null} */
  let play = null;
  const begin = async (at, { frames, gold, assisted }) => {
    const id = levels[at];
    sessionStorage.setItem(key, JSON.stringify([at, { frames, gold, assisted }]));
    const [level, best, ofEpisode] = await Promise.all([loadLevel(id), bestRuns(id), bestRuns(code)]);
    play?.destroy();
    /** @type {any} */
    const episode = { code, at, count: levels.length, frames, gold, assisted, best: ofEpisode };
    episode.next = (total) => begin(at + 1, total);
    episode.again = () => Promise.resolve(studio.go(location.hash));
    play = new Play(root, studio, level, best, episode);
  };
  const [at, total] = JSON.parse(sessionStorage.getItem(key) ?? "null") ?? [0, { frames: 0, gold: 0, assisted: false }];
  await begin(at, total);
  if (at) studio.toast(`${code} goes on with level ${at + 1}.`);
  return () => {
    sessionStorage.removeItem(key);
    play?.destroy();
  };
}
