// Older or foreign files with good signatures, put in place of the files of a finished thread: `rye verify thread` must
// find them, and resuming must ask the model nothing.
import { cpSync, existsSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { withArtifact } from './flips.mjs';
import { hasStackTrace, must, openPlace, pool, row } from './harness.mjs';

const THREAD = 't';
const TURNS = 5;

const folderOf = (place) => place.thread(THREAD);
const exportOf = (place) => place.ai('knowledge/agent/threads/work', `${THREAD}.md`);
/** The other thread runs another directive: two threads of one directive may have the same plan. */
const otherExport = (place) => place.ai('knowledge/agent/threads/long/other.md');

/** Puts copies from the middle of the run back. `kept` holds all of `.ai/state` of then. */
function putBack(...names) {
  return (place, kept) => {
    for (const name of names)
      cpSync(path.join(kept, 'threads', THREAD, name), path.join(folderOf(place), name));
  };
}

function replaceFolder(from, to) {
  rmSync(to, { recursive: true });
  cpSync(from, to, { recursive: true });
}

const ofAnother = (name) => (place) =>
  cpSync(place.thread('other', name), path.join(folderOf(place), name));

function otherArtifact(place) {
  const [mine] = readdirSync(place.thread(THREAD, 'artifacts'));
  cpSync(place.thread(THREAD, 'plan.json'), place.thread(THREAD, 'artifacts', mine));
}

const OLDER = {
  'thread.json and log': putBack('thread.json', 'transcript.jsonl'),
  'thread.json': putBack('thread.json'),
  log: putBack('transcript.jsonl'),
  "the thread's folder": (place, kept) =>
    replaceFolder(path.join(kept, 'threads', THREAD), folderOf(place)),
  'all of .ai/state': (place, kept) => replaceFolder(kept, place.ai('state')),
};

const FOREIGN = {
  thread: ofAnother('thread.json'),
  log: ofAnother('transcript.jsonl'),
  plan: ofAnother('plan.json'),
  capabilities: ofAnother('capabilities.md'),
  export: (place) => cpSync(otherExport(place), exportOf(place)),
  artifact: otherArtifact,
};

const MISSING = {
  plan: (place) => rmSync(place.thread(THREAD, 'plan.json')),
  capabilities: (place) => rmSync(place.thread(THREAD, 'capabilities.md')),
  export: (place) => rmSync(exportOf(place)),
  artifacts: (place) => rmSync(place.thread(THREAD, 'artifacts'), { recursive: true }),
};

/** Finished threads `t` and `other`, and a copy of the state from when the model was asked for the given turn. */
async function finished(model, turn) {
  let place;
  let kept;
  const session = model.session((body, index) => {
    if (kept !== undefined && index === turn - 1 && !existsSync(kept))
      cpSync(place.ai('state'), kept, { recursive: true });
    return withArtifact(body);
  });
  place = await openPlace(session);
  kept = path.join(place.root, 'kept');
  await must(place.rye('run', 'work', '--thread-id', THREAD));
  await must(place.rye('run', 'long', '--thread-id', 'other'));
  await must(place.rye('verify', 'thread', THREAD));
  return { place, kept, session };
}

async function exchange(result, model, { what, change, turn, stopsResume }) {
  const { place, kept, session } = await finished(model, turn);
  try {
    change(place, kept);
    const asked = session.requests.length;
    const first = await place.rye('verify', 'thread', THREAD);
    if (first.code === 0) result.fail('missed', `${what}, turn ${turn}: verify exits 0`);
    await place.rye('threads', 'recover');
    const resumed = await place.rye('threads', 'resume', THREAD);
    const second = await place.rye('verify', 'thread', THREAD);
    const isRefused = resumed.code !== 0 && session.requests.length === asked;
    // a correct resume writes the export again from the signed log
    if (isRefused && second.code === 0)
      result.fail('missed', `${what}, turn ${turn}: verify after resume exits 0`);
    if (!isRefused && second.code === 0) result.note('repaired by resume');
    if (stopsResume && !isRefused)
      result.fail('broken', `${what}, turn ${turn}: resume exits ${resumed.code}`);
    if (isRefused) result.note('refused by resume');
    for (const told of [first, resumed, second])
      if (hasStackTrace(told)) result.fail('broken', `${what}: ${told.stderr}`);
    result.n += 1;
  } finally {
    place.remove();
  }
}

export async function run({ model, count = 3, width }) {
  const rows = [];
  const tables = [
    { title: 'older copies put back', changes: OLDER, turns: count, stopsResume: true },
    { title: 'parts of another thread', changes: FOREIGN, turns: 1, stopsResume: false },
    { title: 'missing parts', changes: MISSING, turns: 1, stopsResume: false },
  ];
  for (const { title, changes, turns, stopsResume } of tables) {
    const result = row(`${title}, for a finished thread`);
    const trials = Object.entries(changes).flatMap(([what, change]) =>
      Array.from({ length: turns }, (_, at) => ({ what, change, turn: 2 + (at % (TURNS - 1)) })),
    );
    await pool(trials.length, width, (index) =>
      exchange(result, model, { ...trials[index], stopsResume }),
    );
    rows.push(result);
  }
  return rows;
}
