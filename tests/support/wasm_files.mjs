/* node wasm_files.mjs FILE...: what nppsim/wasm/files.js reads from each file, as JSON; digests of what it writes. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { cardOf, draftOf, levelToLine, levelToText, readFile, replayToBytes } from "../../nppsim/wasm/files.js";
import { levelFromDraft, levelToBytes } from "../../nppsim/wasm/level.js";

const digest = (data) => createHash("sha256").update(data).digest("hex");
const attempt = (job) => {
  try {
    return job();
  } catch (error) {
    return { error: error.message };
  }
};

function read(file) {
  const { levels, inputs, category, warnings } = readFile(new Uint8Array(readFileSync(file)), basename(file));
  const found = levels.map(({ level, name, code }) => {
    const { draft, lost } = draftOf(level);
    return {
      card: cardOf(level, { name, code, category }),
      map: digest(levelToBytes(level)),
      text: digest(levelToText(level)),
      line: attempt(() => digest(levelToLine(level))),
      lost,
      draft: digest(levelToBytes(levelFromDraft(draft))),
    };
  });
  const written = (format) => digest(replayToBytes(levels[0].level, inputs, { format }));
  return {
    ...{ levels: found, category, warnings, inputs: inputs && digest(inputs) },
    replays: inputs && ["compact", "attract"].map((format) => attempt(() => written(format))),
  };
}

console.log(JSON.stringify(process.argv.slice(2).map((file) => attempt(() => read(file)))));
