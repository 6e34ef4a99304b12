// A disk that fills up during a run, a limit on the size of files, and signing a file with too little room. With room
// again, everything can be recovered and resumed; a file that could not be written whole is the old one.
import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statfsSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { hasStackTrace, leftRunning, openPlace, pool, row, start } from './harness.mjs';
import { stepper, stepsOf } from './model.mjs';

const THREAD = 't';
const TURNS = 8;
const RUN = ['run', 'work', '--thread-id', THREAD];
/** Free KiB for a run: from too little for the registry to enough for everything. */
const LEFT = [60, 200, 300, 340, 400, 480, 600, 750, 950, 1200, 1600];
const FILE_LIMITS = [24, 64, 110, 160, 250];
const SIGN_LEFT = [4, 12, 24, 40, 60];

/** A small file system, or undefined if this user may mount none. */
function smallDisk() {
  const folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-disk-')));
  const remove = () => rmSync(folder, { recursive: true, force: true });
  if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', folder]).status !== 0) {
    remove();
    return undefined;
  }
  const ballast = path.join(folder, 'ballast');
  return {
    folder,
    leave(kib) {
      const { bavail, bsize } = statfsSync(folder);
      writeFileSync(ballast, Buffer.alloc(Math.max(0, bavail * bsize - kib * 1024)));
    },
    makeRoom: () => rmSync(ballast, { force: true }),
    close() {
      spawnSync('umount', ['-l', folder]);
      remove();
    },
  };
}

/** Each step prints 30 kB; what it did is noted outside of the disk. */
function fatModel(model, rootOf) {
  const command = (step) =>
    `echo step-${step} >> ${rootOf()}/effects.log; head -c 30000 /dev/zero | tr '\\0' x`;
  return model.session(stepper(TURNS, command));
}

/** With room again: nothing is left running, and the work is done to its end without doing a step twice. */
async function finishWithRoom(result, { place, session, name }) {
  const recovered = await place.rye('threads', 'recover');
  if (recovered.code !== 0)
    result.fail('broken', `${name}: recover: ${recovered.stdout}${recovered.stderr}`);
  if ((await leftRunning(place)) > 0) result.fail('running', name);
  const { document } = await place.json('threads', 'list');
  const thread = (document?.threads ?? []).find(({ thread_id }) => thread_id === THREAD);
  const hasLog = existsSync(place.thread(THREAD, 'transcript.jsonl'));
  if (hasLog) {
    const verified = await place.rye('verify', 'thread', THREAD);
    if (verified.code !== 0)
      result.fail('broken', `${name}: verify: ${verified.stdout}${verified.stderr}`);
  }
  if (thread?.status === 'completed') {
    result.note('completed');
    return;
  }
  const next = hasLog ? ['threads', 'resume', THREAD] : ['run', 'work', '--thread-id', 'again'];
  const told = await place.rye(...next);
  result.note(hasLog ? 'resumed' : 'refused before the log, then run');
  if (told.code !== 0) {
    result.fail('lost', `${name}: ${next.join(' ')}: ${told.stdout}${told.stderr}`);
    return;
  }
  const known = new Set(stepsOf(session.requests.at(-1).body).map(({ step }) => `step-${step}`));
  for (const [line, times] of place.effects(place.root)) {
    if (times > 1) result.fail('repeated', `${name}: ${line} ${times} times`);
    if (!known.has(line)) result.fail('lost', `${name}: ${line} is in no log`);
  }
}

async function fillUp(result, model, kib) {
  const disk = smallDisk();
  let place;
  const session = fatModel(model, () => place.root);
  place = await openPlace(session, { below: disk.folder });
  try {
    disk.leave(kib);
    const told = await place.rye(...RUN);
    if (hasStackTrace(told)) result.fail('broken', `${kib} KiB: ${told.stderr}`);
    disk.makeRoom();
    await finishWithRoom(result, { place, session, name: `${kib} KiB` });
    result.n += 1;
  } finally {
    disk.close();
    place.remove();
  }
}

function limited(kib, argv) {
  return ['bash', '-c', `ulimit -f ${kib}; exec "$@"`, 'bash', ...argv];
}

async function limitFiles(result, model, kib) {
  let place;
  const session = fatModel(model, () => place.root);
  place = await openPlace(session);
  try {
    const argv = limited(kib, place.command(RUN));
    const told = await start(argv, { cwd: place.project, env: place.env }).done;
    if (hasStackTrace(told)) result.fail('broken', `${kib} KiB: ${told.signal} ${told.stderr}`);
    if (told.code !== 0 && told.stderr === '') result.fail('broken', `${kib} KiB: no message`);
    await finishWithRoom(result, { place, session, name: `files of ${kib} KiB` });
    result.n += 1;
  } finally {
    place.remove();
  }
}

async function sign(result, kib) {
  const disk = smallDisk();
  const place = await openPlace(undefined, disk ? { below: disk.folder } : {});
  try {
    const body = readFileSync(place.ai('directives/work.md'), 'utf8').split('\n').slice(1);
    const line = 'A line of a long directive that a person wrote.\n';
    const text = `${body.join('\n')}\n${line.repeat(1400)}`;
    const file = place.write('.ai/directives/work.md', text);
    disk?.leave(kib);
    const argv = place.command(['sign', 'directive', 'work']);
    const command = disk ? argv : limited(kib, argv);
    const told = await start(command, { cwd: place.project, env: place.env }).done;
    if (told.code === 0 || hasStackTrace(told))
      result.fail('broken', `${kib} KiB: exit ${told.code}: ${told.stderr}`);
    if (readFileSync(file, 'utf8') !== text) result.fail('lost', `${kib} KiB: the file changed`);
    const left = readdirSync(path.dirname(file)).filter((name) => name.startsWith('.'));
    if (left.length > 0) result.fail('broken', `${kib} KiB: ${left.join(', ')} is left`);
    disk?.makeRoom();
    const again = await place.rye('sign', 'directive', 'work');
    if (again.code !== 0 || !readFileSync(file, 'utf8').endsWith(text))
      result.fail('lost', `${kib} KiB: with room again: ${again.stderr}`);
    result.n += 1;
  } finally {
    disk?.close();
    place.remove();
  }
}

export async function run({ model, width }) {
  const full = row('disk full during a run, then room again');
  const probe = smallDisk();
  probe?.close();
  if (probe) await pool(LEFT.length, width, (index) => fillUp(full, model, LEFT[index]));
  else full.note('not tried: this user may mount nothing');
  const files = row('limit on the size of files during a run, then none');
  await pool(FILE_LIMITS.length, width, (at) => limitFiles(files, model, FILE_LIMITS[at]));
  const signed = row('`rye sign` of 69 kB without room for it');
  await pool(SIGN_LEFT.length, width, (index) => sign(signed, SIGN_LEFT[index]));
  return [full, files, signed];
}
