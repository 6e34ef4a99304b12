// kill -9 at a random instant of a run of 12 turns, each with a command that must not run twice. Then recovery,
// verification and resuming, with the same model: what was done is known, nothing is done twice, everything is booked.
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { leftRunning, openPlace, pool, row, signedLines } from './harness.mjs';
import { NOT_STARTED, stepper, stepsOf } from './model.mjs';

const TURNS = 12;
const THREAD = 't';
/** USD per token of the model that the trials name. */
const PRICE = { input: 2 / 1e6, output: 10 / 1e6 };
const RUN = ['run', 'work', '--thread-id', THREAD, '--json'];

const command = (step) => `sleep 0.02; echo step-${step} >> effects.log; sleep 0.02`;

/** Returns the amount that the model's server would have billed for these requests. */
function billed(requests) {
  const input = requests.reduce((sum, one) => sum + one.input, 0);
  const output = requests.reduce((sum, one) => sum + one.output, 0);
  return { input, output, usd: input * PRICE.input + output * PRICE.output };
}

async function costOf(place, id) {
  const { document } = await place.json('threads', 'show', id);
  return document?.thread?.cost;
}

/** Compares what a thread booked with what its requests were billed. */
function checkCost(result, booked, requests) {
  const bill = billed(requests);
  if (requests.length === 0) return;
  const over = (booked?.spend ?? 0) - bill.usd;
  if (over < -1e-6) {
    result.fail('understated', `${JSON.stringify(booked)} for ${JSON.stringify(bill)}`);
    return;
  }
  result.note(over > 1e-6 ? 'booked above the bill' : 'booked exactly');
  // the input of an open call is estimated: how a server counts tokens is not known before it answers
  if (booked.input_tokens < bill.input)
    result.note('of those above with a lower estimate of the input, made up for by the output');
}

/** Returns the steps that the log of a killed thread proves: those with a result before the last signature. */
function settledIn(place) {
  const file = place.thread(THREAD, 'transcript.jsonl');
  if (!existsSync(file)) return [];
  const events = signedLines(readFileSync(file, 'utf8'));
  const ok = new Set(
    events.flatMap(({ event_type, payload }) =>
      event_type === 'tool_settled' && payload.outcome === 'ok' ? [payload.call_id] : [],
    ),
  );
  return events.flatMap(({ event_type, payload }) => {
    const step = /step-(\d+)/.exec(JSON.stringify(payload?.input ?? ''))?.[1];
    return event_type === 'tool_call_start' && ok.has(payload.call_id) ? [Number(step)] : [];
  });
}

const UNKNOWN = /unknown|result was lost/;

/** Compares the model's input after the kill with the actual events. */
function checkConversation(result, seen) {
  const { told, settled, done, name } = seen;
  const results = new Map(told.map(({ step, result: text }) => [step, text]));
  for (const step of settled) {
    const text = results.get(step);
    if (text === undefined || UNKNOWN.test(text) || text.includes(NOT_STARTED))
      result.fail('lost', `${name}: step ${step} had a signed result, the model is told ${text}`);
  }
  for (const step of done) {
    const text = results.get(step);
    if (text === undefined) result.fail('lost', `${name}: the effect of step ${step} is in no log`);
    else if (text.includes(NOT_STARTED))
      result.fail('broken', `${name}: step ${step} ran, the model is told that it did not`);
  }
  if (told.some(({ result: text }) => UNKNOWN.test(text))) result.note('told "unknown" of a call');
}

function checkEffects(result, place, name) {
  const effects = place.effects();
  for (const [line, times] of effects)
    if (times > 1) result.fail('repeated', `${name}: ${line} ${times} times`);
  return [...effects.keys()].map((line) => Number(line.slice('step-'.length)));
}

async function recoverAndVerify(result, place, name) {
  const recovered = await place.rye('threads', 'recover');
  if (recovered.code !== 0) result.fail('broken', `${name}: recover: ${recovered.stderr}`);
  const running = await leftRunning(place);
  if (running > 0) result.fail('running', `${name}: ${running} after recovery`);
  const { document } = await place.json('threads', 'list');
  const thread = (document?.threads ?? []).find(({ thread_id }) => thread_id === THREAD);
  if (thread === undefined || !existsSync(place.thread(THREAD, 'transcript.jsonl'))) return thread;
  const verified = await place.rye('verify', 'thread', THREAD);
  if (verified.code !== 0)
    result.fail('broken', `${name}: verify: ${verified.stdout}${verified.stderr}`);
  return thread;
}

/** Resumes a killed thread, or starts again if nothing of it was written. */
async function goOn(result, { place, session, name }) {
  const hasLog = existsSync(place.thread(THREAD, 'transcript.jsonl'));
  const settled = settledIn(place);
  const before = session.requests.length;
  const thread = await recoverAndVerify(result, place, name);
  const done = checkEffects(result, place, name);
  if (thread?.status === 'completed') {
    result.note('after its end');
    checkCost(result, await costOf(place, THREAD), session.requests);
    return;
  }
  if (!hasLog) {
    result.note('before its log');
    if (done.length > 0 || before > 0)
      result.fail('lost', `${name}: no log, but ${done.length} effects and ${before} requests`);
    const again = await place.json('run', 'work', '--thread-id', 'again');
    if (again.code !== 0) result.fail('broken', `${name}: a new start: ${again.stderr}`);
    return;
  }
  checkCost(result, await costOf(place, THREAD), session.requests.slice(0, before));
  const resumed = await place.json('threads', 'resume', THREAD);
  if (resumed.code !== 0) {
    result.fail('broken', `${name}: resume: ${resumed.stderr}${resumed.stdout}`);
    return;
  }
  result.note('resumed');
  const after = session.requests.slice(before);
  const told = after.length > 0 ? stepsOf(after.at(-1).body) : [];
  checkConversation(result, { told, settled, done, name });
  checkCost(result, await costOf(place, resumed.document.thread_id), after);
}

async function killedRun(result, { model, at, name }) {
  const session = model.session(stepper(TURNS, command, { pauseMs: 4 }));
  const place = await openPlace(session);
  try {
    const { child, done } = place.start(RUN);
    const ended = new AbortController();
    await Promise.race([
      delay(at, undefined, { signal: ended.signal }).catch(() => undefined),
      done,
    ]);
    ended.abort();
    child.kill('SIGKILL');
    await done;
    await goOn(result, { place, session, name });
    checkEffects(result, place, name);
    for (const id of session.orphans)
      result.fail('broken', `${name}: ${id} without call or result`);
    if ((await leftRunning(place)) > 0) result.fail('running', `${name}: at the end`);
    result.n += 1;
  } finally {
    place.remove();
  }
}

/** Measures a whole run on this machine. */
async function wholeRun(model) {
  const place = await openPlace(model.session(stepper(TURNS, command, { pauseMs: 4 })));
  const begun = performance.now();
  const { code, stderr } = await place.rye(...RUN);
  if (code !== 0) throw new Error(`the run that is to be killed fails by itself: ${stderr}`);
  place.remove();
  return performance.now() - begun;
}

/** The provider bills a long prompt as soon as it has it. */
async function killedBeforeTheFirstWord(result, model, name) {
  let silent = true;
  const session = model.session(() => (silent ? { silent } : { words: ['Done.'] }));
  const place = await openPlace(session);
  try {
    const { child, done } = place.start(['run', 'long', '--thread-id', THREAD, '--json']);
    await session.asked(1, done);
    child.kill('SIGKILL');
    await done;
    await recoverAndVerify(result, place, name);
    checkCost(result, await costOf(place, THREAD), session.requests);
    silent = false;
    const { code, stderr } = await place.rye('threads', 'resume', THREAD);
    if (code !== 0) result.fail('broken', `${name}: resume: ${stderr}`);
    result.n += 1;
  } finally {
    place.remove();
  }
}

export async function run({ model, random, count = 100, width }) {
  const instants = row('kill -9 at a random instant of 12 turns, then recover, verify, resume');
  const wholeMs = await wholeRun(model);
  const times = Array.from({ length: count }, () => random() * wholeMs);
  await pool(count, width, async (index) => {
    const at = times[index];
    await killedRun(instants, { model, at, name: `kill ${index} after ${Math.round(at)} ms` });
  });
  const silent = row('kill -9 before the first word of an answer to 50,000 tokens');
  await pool(Math.ceil(count / 20), width, async (index) => {
    await killedBeforeTheFirstWord(silent, model, `silent ${index}`);
  });
  return [instants, silent];
}
