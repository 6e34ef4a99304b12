import { writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { HandlerMap } from '../../src/kernel/hooks/handlers.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { calls, reply, toolUse, type WireServer, type WireTurn } from '../helpers/wire-server.ts';

let lab: Lab;
let server: WireServer;
let answers: readonly WireTurn[];

const read = (id: string) => toolUse('skills_read', { name: 'tables', path: 'form.md' }, id);

beforeEach(async () => {
  lab = await openLab();
  answers = [];
  server = await lab.model(({ index }) => answers[index] ?? reply('Done.'));
  for (const [name, more] of [
    ['tables', ''],
    ['strict', 'metadata: {rye-restrict-tools: rye/file-system/ls}\n'],
    ['private', ''],
    ['unsigned', ''],
  ] as const) {
    const head = `---\nname: ${name}\ndescription: How to do ${name}.\n${more}---\n`;
    lab.write(`skills/${name}/SKILL.md`, `${head}The body of ${name}.\n`);
    lab.write(`skills/${name}/form.md`, `the form of ${name}`);
    if (name !== 'unsigned') await lab.sign('skill', name);
  }
  lab.signed(
    'directives/work.md',
    directive('work', {
      limits: 'turns="9" spend="0.50"',
      permissions: `<fetch><skill>tables</skill></fetch><fetch><skill>strict</skill></fetch><fetch><skill optional="true">unsigned</skill></fetch><execute><tool>rye/file-system/*</tool></execute>`,
    }),
  );
});

afterEach(async () => await lab.remove());

const MODEL = { model: 'claude-haiku-5-5', provider: 'anthropic' };

async function start(): Promise<void> {
  await lab.run('work', { threadId: 's', ...MODEL });
}

async function changes(): Promise<readonly string[]> {
  return (await lab.events('s')).flatMap(({ event_type: type, payload }) =>
    type.startsWith('skill_') ? [`${type} ${Object.values(payload).slice(0, 2).join(' ')}`] : [],
  );
}

const last = (): string => JSON.stringify(server.requests.at(-1)?.body);

describe('a skill that a program activates', () => {
  it('counts for the next run of a thread, and no longer', async () => {
    answers = [reply('Hi.'), calls(read('a')), reply('Read.'), calls(read('b')), reply('Again.')];
    await start();
    const rye = lab.rye();
    await rye.skills.activate('s', 'tables');
    await rye.recovery.resume({ threadId: 's', message: 'Go.' });
    expect(JSON.stringify(server.requests[1]?.body.messages)).toMatch(/The body of tables.*Go\./);
    expect(last()).toContain('the form of tables');
    expect(await changes()).toEqual([
      'skill_activated tables host',
      'skill_deactivated tables run_end',
    ]);
    await rye.recovery.resume({ threadId: 's', message: 'And now?' });
    expect(last()).toContain('Load the skill with skills_use');
    expect((await rye.threads.verify('s')).ok).toBe(true);
    expect(await rye.trees.replay('s')).toMatchObject({ difference: null });
  });

  it('counts at once in a running thread, until it is deactivated', async () => {
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let done = (): void => undefined;
    const later = new Promise<void>((resolve) => {
      done = resolve;
    });
    const list = (id: string) => toolUse('rye_file_system_glob', { pattern: id }, id);
    answers = [
      calls({ kind: 'wait', until: held }, list('a')),
      calls({ kind: 'wait', until: later }, list('b')),
      calls(list('c')),
    ];
    const running = start();
    const rye = lab.rye();
    await server.request(0);
    await rye.skills.activate('s', 'strict');
    release();
    await server.request(1);
    expect(last()).toContain('The body of strict.');
    await rye.skills.deactivate('s', 'strict');
    done();
    await running;
    const settled = (await lab.events('s')).flatMap((event) =>
      event.event_type === 'tool_settled' ? [(event.payload as { outcome: string }).outcome] : [],
    );
    // the second call ran into the restriction of the skill
    expect(settled).toEqual(['ok', 'blocked', 'ok']);
    expect(await changes()).toEqual([
      'skill_activated strict host',
      'skill_deactivated strict host',
    ]);
    expect((await rye.threads.verify('s')).ok).toBe(true);
  });

  it('is refused if the thread may not fetch it, or if it is not as it was signed', async () => {
    await start();
    const rye = lab.rye();
    await expect(rye.skills.activate('s', 'private')).rejects.toMatchObject({
      code: 'capability_denied',
    });
    await expect(rye.skills.activate('s', 'unsigned')).rejects.toMatchObject({ code: 'unsigned' });
    await expect(rye.skills.activate('none', 'tables')).rejects.toMatchObject({
      code: 'thread_not_found',
    });
    writeFileSync(lab.path('skills/tables/form.md'), 'changed since');
    await expect(rye.skills.activate('s', 'tables')).rejects.toMatchObject({
      code: 'content_modified',
    });
  });

  it('stays away if it was changed before the thread could take it', async () => {
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    answers = [calls({ kind: 'wait', until: held }, toolUse('rye_file_system_ls', {}, 'a'))];
    const running = start();
    await server.request(0);
    await lab.rye().skills.activate('s', 'tables');
    writeFileSync(lab.path('skills/tables/form.md'), 'changed since');
    release();
    await running;
    expect(server.requests).toHaveLength(2);
    expect(last()).not.toContain('The body of tables');
    expect(JSON.stringify(await lab.events('s'))).toContain('the skill tables was not activated');
    expect(await changes()).toEqual([]);
  });

  it('comes from /skill in a chat, before and after the first message', async () => {
    const chat = await lab.rye().chat({ directiveId: 'work', start: MODEL });
    const skill = chat.parse('/skill tables') ?? { name: 'help', rest: '' };
    expect(await chat.run(skill)).toEqual({ command: 'skill', skill: 'tables' });
    await chat.send();
    expect(last()).toContain('The body of tables.');
    await chat.run({ name: 'skill', rest: 'strict' });
    await chat.send('Next.');
    expect(last()).toMatch(/The body of strict\..*Next\./);
    for (const rest of ['', 'private']) {
      await expect(chat.run({ name: 'skill', rest })).rejects.toMatchObject({
        code: rest === '' ? 'usage' : 'capability_denied',
      });
    }
    chat.close();
  });
});

describe('handlers of a program', () => {
  async function listed(handlers: HandlerMap): Promise<string> {
    await lab.rye().run({ directiveId: 'work', threadId: 's', ...MODEL, handlers });
    return JSON.stringify(server.requests[0]?.body.system ?? '');
  }

  it('narrow the listed skills, and can add none', async () => {
    answers = [calls(toolUse('skills_use', { name: 'strict' }, 'a'))];
    const seen: unknown[] = [];
    const system = await listed({
      skills_resolve: ({ skills }) => {
        seen.push(skills);
        return { skills: ['tables', 'private', 'unsigned'] };
      },
      skills_catalog: ({ catalog }) => ({ catalog: `${catalog}\nPrefer tables.` }),
    });
    expect(seen).toEqual([
      [
        { id: 'strict', description: 'How to do strict.' },
        { id: 'tables', description: 'How to do tables.' },
      ],
    ]);
    expect(system).toMatch(/How to do tables\..*Prefer tables\./);
    for (const name of ['strict', 'private', 'unsigned']) {
      expect(system).not.toContain(`How to do ${name}`);
    }
    expect(last()).toContain('Unknown skill strict');
    await expect(lab.rye().skills.activate('s', 'private')).rejects.toMatchObject({
      code: 'capability_denied',
    });
  });

  it('leave no skill if one of them fails', async () => {
    const system = await listed({
      skills_resolve: () => {
        throw new Error('no answer');
      },
    });
    expect(system).not.toContain('How to do');
    expect(JSON.stringify(await lab.events('s'))).toContain('so the run has no skills: no answer');
  });
});
