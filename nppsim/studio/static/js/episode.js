/* View "Episode": the five levels of an episode in one go, with one clock.  After a death, the level restarts with the
 * clock that it began with.
 */

import { Socket, get, opened } from "./api.js";
import { Play } from "./play.js";

/** The view; see app.js.  code: id of the episode, such as "S-C-12". */
export async function show(root, studio, code) {
  const found = await get(`episodes/${code}`);
  let play = null;
  const begin = async (at, { frames, gold, assisted, socket }) => {
    const id = found.levels[at];
    const [level, best] = await Promise.all([get(`levels/${id}`), get(`levels/${id}/best`)]);
    play?.destroy({ keepSocket: true });
    const episode = { code, at, count: found.levels.length, frames, gold, assisted, best: found.best, socket };
    episode.next = (total) => begin(at + 1, { ...total, socket });
    episode.again = () => Promise.resolve(studio.go(location.hash));
    play = new Play(root, studio, level, best, episode);
    await opened(play);
  };
  await begin(0, { frames: 0, gold: 0, assisted: false, socket: new Socket("play") });
  return () => play.destroy();
}
