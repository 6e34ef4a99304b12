// Many processes at once: eight resume one thread, which only one may get, and fifty start separate threads.
import { leftRunning, must, openPlace, pool, row } from './harness.mjs';
import { stepper } from './model.mjs';

const THREAD = 't';
const TURNS = 4;
const RESUMERS = 8;
const STARTS = 50;

const command = (step) => `echo step-${step} >> effects.log`;

async function resumeAtOnce(result, model, name) {
  let isSilent = true;
  const session = model.session((body, index) =>
    isSilent && index === 2 ? { silent: true } : stepper(TURNS, command, { pauseMs: 20 })(body),
  );
  const place = await openPlace(session);
  try {
    const { child, done } = place.start(['run', 'work', '--thread-id', THREAD]);
    await session.asked(3, done);
    child.kill('SIGKILL');
    await done;
    isSilent = false;
    const told = await Promise.all(
      Array.from({ length: RESUMERS }, () => place.json('threads', 'resume', THREAD)),
    );
    const winners = told.filter(({ code }) => code === 0);
    if (winners.length !== 1) result.fail('broken', `${name}: ${winners.length} of 8 resumed`);
    for (const { code, document, stderr } of told)
      if (code !== 0) result.note(document?.error?.code ?? stderr);
    const effects = place.effects();
    for (let step = 1; step <= TURNS; step += 1) {
      const times = effects.get(`step-${step}`) ?? 0;
      if (times > 1) result.fail('repeated', `${name}: step ${step} ${times} times`);
      if (times === 0) result.fail('lost', `${name}: step ${step}`);
    }
    if ((await leftRunning(place)) > 0) result.fail('running', name);
    result.n += 1;
  } finally {
    place.remove();
  }
}

async function startAtOnce(result) {
  // without a key the directive's own steps run, and no model is asked
  const place = await openPlace();
  try {
    const told = await Promise.all(
      Array.from({ length: STARTS }, () => place.json('run', 'hello')),
    );
    for (const { code, stderr, stdout } of told)
      if (code !== 0) result.fail('lost', `exit ${code}: ${stderr}${stdout}`);
    if (told.some(({ stderr, stdout }) => /SQLITE_BUSY|database is locked/.test(stderr + stdout)))
      result.fail('broken', 'a database was locked');
    const ids = new Set(told.map(({ document }) => document?.thread_id));
    if (ids.size !== STARTS) result.fail('repeated', `${ids.size} ids`);
    const running = await leftRunning(place);
    if (running > 0) result.fail('running', `${running} threads`);
    for (const id of ids) await must(place.rye('verify', 'thread', id));
    result.note('different ids, all verified', ids.size);
    result.n += STARTS;
  } finally {
    place.remove();
  }
}

export async function run({ model, count = 5 }) {
  const resumed = row('8 processes resume one crashed thread');
  // eight processes are enough at a time
  await pool(count, 1, (index) => resumeAtOnce(resumed, model, `round ${index}`));
  const started = row('50 processes start a thread at once');
  await startAtOnce(started);
  return [resumed, started];
}
