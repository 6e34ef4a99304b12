// kill -9 at each boundary of a call that a person decides about: its request, the row, the decision, its use together
// with the intent of the call, the effect, the result. Then recovery, one more look by the person, and resuming: the call
// runs once, or the model is told that its end is unknown; no decision is lost, and none is used twice.
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { openRye } from '../../dist/index.js';
import { openPlace, pool, row, signedLines, start } from './harness.mjs';

const THREAD = 't';
const RUN = ['run', 'ask', '--thread-id', THREAD, '--json'];
const CRASH = fileURLToPath(new URL('../../test/faults/crash-points.mjs', import.meta.url));
const COMMAND = 'echo step-1 >> effects.log';

/** The commands before the killed command, that command, and the step after which it dies. */
const BOUNDARIES = [
  { name: 'request written', stage: 'run', step: 'append approval_requested' },
  { name: 'end of the turn that waits', stage: 'run', step: 'fdatasync', nth: 4 },
  { name: 'row', stage: 'run', step: 'commit registry.db add' },
  { name: 'decision', stage: 'approve', step: 'commit registry.db decide' },
  { name: 'decision consumed', stage: 'resume', step: 'append approval_decided+tool_call_start' },
  { name: 'effect', stage: 'resume', effect: true },
  { name: 'result', stage: 'resume', step: 'append tool_settled' },
];

const DIRECTIVE = `\`\`\`xml
<directive name="ask" version="1.0.0">
<metadata><description>ask</description><category></category><author>trials</author>
<model tier="general" provider="anthropic" />
<limits turns="60" spend="50" />
<permissions><execute><tool ask="true">rye/bash</tool></execute>
<acknowledge risk="elevated">the trials count what commands did</acknowledge></permissions></metadata>
</directive>
\`\`\`

Do the step.
`;

/** The model makes its call until a result reports that it was started. */
function decide(body) {
  const text = JSON.stringify(body.messages);
  const isOpen = !text.includes('"tool_result"') || text.includes('was not started');
  return isOpen
    ? { words: ['Now.'], tools: [{ name: 'rye_bash', input: { command: COMMAND } }] }
    : { words: ['All is done.'] };
}

/** Works on a place as a program of the same user does. */
async function asUser({ project, home, env }, work) {
  const rye = openRye({ projectPath: project, userSpacePath: home, env });
  try {
    return await work(rye);
  } finally {
    rye.close();
  }
}

/** Approves what waits; returns the IDs. */
async function approveAll(rye) {
  const waiting = await rye.approvals.list();
  for (const { id } of waiting) {
    await rye.approvals.decide({ id, decision: 'approve', resume: false });
  }
  return waiting.map(({ id }) => id);
}

const STAGES = {
  run: () => RUN,
  approve: (id) => ['approve', id, '--no-resume'],
  resume: () => ['threads', 'resume', THREAD, '--json'],
};

/** Runs a command that dies after a step, or at a random instant around the effect of its call. */
async function killAt(place, args, { step, nth = 1, effect }, random) {
  const [program, ...rest] = place.command(args);
  if (effect) {
    // a random instant of the command, from before its start to after its end
    const { child, done } = start([program, ...rest], { cwd: place.project, env: place.env });
    const file = path.join(place.project, 'effects.log');
    const late = random() * 40;
    const timer = setInterval(() => {
      if (!existsSync(file)) return;
      clearInterval(timer);
      setTimeout(() => child.kill('SIGKILL'), late);
    }, 1);
    const ended = await done;
    clearInterval(timer);
    return ended;
  }
  const env = {
    ...place.env,
    RYE_TEST_KILL: JSON.stringify({ role: 'parent', begins: step, nth }),
  };
  return await start([program, '--import', CRASH, ...rest], { cwd: place.project, env }).done;
}

function eventsOf(place) {
  const file = place.thread(THREAD, 'transcript.jsonl');
  return existsSync(file) ? signedLines(readFileSync(file, 'utf8')) : [];
}

/** Recovers and finishes the thread as a person would. */
async function finish(rye) {
  await rye.recovery.recover();
  for (let round = 0; round < 6; round += 1) {
    const thread = (await rye.threads.list()).find(({ thread_id: id }) => id === THREAD);
    if (thread?.status === 'completed') return;
    await approveAll(rye);
    await rye.recovery.resume({ threadId: THREAD });
  }
}

/** Checks what happened in all; `wasAsked`: the request was in the log before. */
async function check(result, place, { name, wasAsked }) {
  const events = eventsOf(place);
  const of = (type) => events.filter(({ event_type }) => event_type === type);
  const ran = place.effects().get('step-1') ?? 0;
  const approved = of('tool_call_start').filter(({ payload }) => payload.approval).length;
  const isUnknown = of('tool_settled').some(({ payload }) => payload.outcome === 'aborted');
  if (of('tool_call_start').length !== approved)
    result.fail('missed', `${name}: a call started without a decision`);
  if (ran > 1 || approved > 1) result.fail('repeated', `${name}: ${ran} runs, ${approved} starts`);
  if (ran === 0 && !isUnknown) result.fail('lost', `${name}: the approved call never ran`);
  if (wasAsked && of('approval_requested').length !== 1)
    result.fail('lost', `${name}: asked ${of('approval_requested').length} times`);
  if (isUnknown) result.note('told "unknown"');
  const { ok, checks } = await asUser(place, (rye) => rye.threads.verify(THREAD));
  if (!ok) result.fail('broken', `${name}: verify: ${JSON.stringify(checks)}`);
}

async function trial(result, { session, boundary, random, index }) {
  const place = await openPlace(session);
  const name = `${boundary.name} #${index}`;
  try {
    place.write('.ai/directives/ask.md', DIRECTIVE);
    const id = await asUser(place, async (rye) => {
      await rye.items.sign('directive', 'ask');
      if (boundary.stage === 'run') return '';
      await rye.threads.execute({ directiveId: 'ask', threadId: THREAD });
      const [found] = await rye.approvals.list();
      if (boundary.stage === 'resume') await approveAll(rye);
      return found?.id ?? '';
    });
    const { signal, stderr } = await killAt(place, STAGES[boundary.stage](id), boundary, random);
    if (signal === 'SIGKILL') result.note('killed');
    else if (!boundary.effect) result.fail('broken', `${name}: not killed: ${stderr}`);
    const wasAsked = eventsOf(place).some(({ event_type: type }) => type === 'approval_requested');
    await asUser(place, finish);
    await check(result, place, { name, wasAsked });
    result.n += 1;
  } finally {
    place.remove();
  }
}

export async function run({ model, count = 100, width, random }) {
  const rows = [];
  for (const boundary of BOUNDARIES) {
    const result = row(`killed at a call that asks: ${boundary.name}`);
    await pool(count, width, async (index) => {
      await trial(result, { session: model.session(decide), boundary, random, index });
    });
    rows.push(result);
  }
  return rows;
}
