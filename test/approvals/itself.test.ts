import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { directive } from '../attacks/lab.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { sampleOf } from '../helpers/sample-of.ts';
import { sandboxWorks } from '../helpers/sandbox.ts';
import { calls, type House, house, marks, reply, toolUse } from './house.ts';

const FREE = directive('free', {
  limits: 'turns="20" spend="0.10"',
  permissions:
    '<execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">Tests.</acknowledge>',
});

/** A request of one thread that waits, and what another thread needs to decide about it. */
interface Target {
  readonly id: string;
  readonly threadId: string;
  /** A command line of `rye` on the project and the user's home. */
  readonly rye: (args: string) => string;
  /** A line that runs a module with `openRye` and the options of the project at hand. */
  readonly library: (code: string) => string;
  readonly database: string;
}

/** Runs the commands in the shell of a thread while a request waits; returns what the model was told about them. */
async function inThread(
  here: House,
  commandsFor: (target: Target) => readonly string[],
  sandbox: 'off' | 'auto' | 'required' = 'off',
): Promise<{ readonly target: Target; readonly told: readonly string[] }> {
  const folder = await cliPackage();
  const program = join(folder, 'bin/rye.js');
  here.signed('directives/free.md', FREE);
  here.sandbox(sandbox);
  let commands: readonly string[] = [];
  await here.model(({ body }) => {
    here.bodies.push(body);
    if (here.bodies.length === 1) return calls(marks('mark'));
    const command = commands[here.bodies.length - 2];
    return command === undefined ? reply('done') : calls(toolUse('rye_bash', { command }));
  });
  const { id, threadId } = await here.asks();
  const options = JSON.stringify({ projectPath: here.project, userSpacePath: here.home });
  const target: Target = {
    id,
    threadId,
    rye: (args) =>
      `${process.execPath} ${program} --project ${here.project} --user-space ${here.home} ${args}`,
    library: (code) => {
      const name = `attack-${Math.random().toString(36).slice(2)}.mjs`;
      const text = `import { openRye } from ${JSON.stringify(join(folder, 'dist/index.js'))};\nconst options = ${options};\n${code}\n`;
      writeFileSync(join(here.project, name), text);
      return `${process.execPath} ${join(here.project, name)}`;
    },
    database: join(here.project, '.ai/state/threads/registry.db'),
  };
  commands = commandsFor(target);
  await here.json(['run', 'free']);
  const blocks = here.bodies
    .at(-1)
    ?.messages.flatMap(({ content }) => (typeof content === 'string' ? [] : content));
  const told = (blocks ?? [])
    .filter((block) => block['type'] === 'tool_result')
    .map((block) => JSON.stringify(block['content']));
  return { target, told };
}

/** The request waits as before: no decision was recorded, and its call did not run. */
async function expectUndecided(here: House, { id, threadId }: Target): Promise<void> {
  expect((await here.waiting()).map((one) => one.id)).toEqual([id]);
  expect(here.file('mark')).toBeUndefined();
  await here.json(['threads', 'resume', threadId], 8);
  expect(here.file('mark')).toBeUndefined();
}

/** Runs a command in a process that its shell no longer knows, and prints its output. */
const detached = (command: string): string =>
  `rm -f out done; (setsid sh -c '(${command}; echo "exit $?") > out 2>&1; touch done' &) ; until [ -e done ]; do sleep 0.05; done; cat out`;

const DECIDE =
  "await openRye({ ...options, env }).approvals.decide({ id: process.env.ID ?? id, decision: 'approve' })";

// Requirement: approvals-not-from-threads, approvals-rows-prove-nothing
describe('a thread that decides about a request itself', () => {
  const ways: readonly (readonly [string, (target: Target) => string])[] = [
    ['with rye approve', ({ rye, id }) => rye(`approve ${id}`)],
    ['with rye deny', ({ rye, id }) => rye(`deny ${id} --comment x`)],
    ['with an empty environment', ({ rye, id }) => `env -i ${rye(`approve ${id}`)}`],
    ['in a new session', ({ rye, id }) => `setsid -w ${rye(`approve ${id}`)}`],
    [
      'in a new session with an empty environment',
      ({ rye, id }) => `env -i setsid -w ${rye(`approve ${id}`)}`,
    ],
    ['with nohup', ({ rye, id }) => `nohup ${rye(`approve ${id}`)}`],
    [
      'through node -e',
      ({ rye, id }) =>
        `${process.execPath} -e 'require("child_process").execSync(process.argv[1],{stdio:"inherit",env:{}})' '${rye(`approve ${id}`)}'`,
    ],
    ['in a detached process', ({ rye, id }) => detached(rye(`approve ${id}`))],
    [
      'through the library',
      ({ library, id }) =>
        library(`const id = '${id}'; const env = process.env;\n${DECIDE}.catch(fail);${FAIL}`),
    ],
    [
      'through the library that is given no environment',
      ({ library, id }) =>
        library(`const id = '${id}'; const env = {};\n${DECIDE}.catch(fail);${FAIL}`),
    ],
  ];

  it.each(sampleOf(ways, 3))(
    'is refused: %s',
    async (_name, commandFor) => {
      const here = await house();
      const { target, told } = await inThread(here, (one) => [
        `${commandFor(one)} 2>&1; echo "exit $?"`,
      ]);
      expect(told.join()).toContain('approval_refused');
      expect(told.join()).toMatch(/exit [14]/);
      await expectUndecided(here, target);
      expect((await here.row(target.id)).decisions).toEqual([]);
    },
    120_000,
  );

  it('gains nothing by writing to the database', async () => {
    const here = await house();
    const { target, told } = await inThread(here, ({ database, id }) => {
      const code = [
        `const db = require(${JSON.stringify(join(process.cwd(), 'node_modules/better-sqlite3'))})(${JSON.stringify(database)});`,
        `const decision = { format: 1, approval_id: "${id}", decision: "approve", scope: "tool" };`,
        'const signed = { decision, public_key: "none", signature: "AAAA" };',
        `db.prepare("INSERT INTO approval_decisions (approval_id, signature, signed, recorded_at, late) VALUES (?, ?, ?, ?, 0)").run("${id}", "AAAA", JSON.stringify(signed), new Date().toISOString());`,
        `db.prepare("UPDATE approvals SET state = ?, closed_at = ?").run("approved", new Date().toISOString());`,
        'console.log("written");',
      ].join('\n');
      writeFileSync(join(here.project, 'attack.cjs'), code);
      return [`${process.execPath} attack.cjs`];
    });
    expect(told.join()).toContain('written');
    await here.json(['threads', 'resume', target.threadId], 8);
    expect(here.file('mark')).toBeUndefined();
    expect((await here.cli(['approvals', 'verify', target.id])).code).toBe(3);
    // a person can still decide: the row that the thread closed is open again
    await here.json(['approve', target.id, '--no-resume']);
    await here.json(['threads', 'resume', target.threadId]);
    expect(here.file('mark')).toBe('ran\n');
  });

  it('gains nothing by adding to its log', async () => {
    const here = await house();
    const { target } = await inThread(here, ({ id, threadId }) => {
      const file = `.ai/state/threads/${threadId}/transcript.jsonl`;
      const payload = { approval_id: id, request_sha256: '', outcome: 'approved', decisions: [] };
      const event = { seq: 999, thread_id: threadId, event_type: 'approval_decided', payload };
      return [`echo '${JSON.stringify(event)}' >> ${file}`];
    });
    const resumed = await here.cli(['threads', 'resume', target.threadId]);
    expect(resumed.code, resumed.stderr).not.toBe(0);
    expect(here.file('mark')).toBeUndefined();
  });
});

const FAIL = '\nfunction fail(error) { console.log(error.code); process.exit(4); }';

const available = await sandboxWorks();

describe('a process that left its thread', () => {
  /** No ancestor, no environment, and the user's key. */
  const orphan = ({ rye, id }: Target): string =>
    // the pipe ends with the shell that is the parent: process ids of a sandbox differ from the ids in its /proc
    `rm -f out done end; mkfifo end; env -i PATH="$PATH" setsid sh -c '(cat end; ${rye(`approve ${id}`)} > out 2>&1; touch done) & exec 3> end'; until [ -e done ]; do sleep 0.05; done; cat out`;

  it('is told from a program of yours by the mark of its tool, without the sandbox too', async () => {
    const here = await house();
    const { target, told } = await inThread(here, (one) => [orphan(one)]);
    expect(told.join()).toContain('was started by a tool of a thread: a thread cannot decide');
    await expectUndecided(here, target);
  });

  it.runIf(available).each(['auto', 'required'] as const)(
    'finds no key and no way into the state in the sandbox (%s)',
    async (mode) => {
      const here = await house();
      const commands = (one: Target): readonly string[] => [
        `${orphan(one)}; echo x > ${one.database}; cat ${here.home}/.ai/config/keys/signing/*`,
      ];
      const { target, told } = await inThread(here, commands, mode);
      expect(told.join()).not.toMatch(/ approved|PRIVATE KEY/);
      expect(told.join()).toContain('Read-only');
      await expectUndecided(here, target);
    },
    120_000,
  );
});
