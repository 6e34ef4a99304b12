import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import { openRye } from '../../../src/open-rye.ts';
import { directive, type Lab, openLab } from '../../attacks/lab.ts';
import { createFakeIo, type FakeIoOptions } from '../../helpers/fake-io.ts';
import { reply, type WireBody, type WireTurn } from '../../helpers/wire-server.ts';

let lab: Lab;
let bodies: WireBody[] = [];
let turns: WireTurn[] = [];

beforeEach(async () => {
  lab = await openLab();
  await lab.model(({ body }) => {
    bodies.push(body);
    return turns.shift() ?? reply(`answer ${bodies.length}`);
  });
  lab.signed(
    'directives/tour.md',
    directive('tour', {
      limits: 'turns="1" spend="0.50"',
      children: '<inputs><input name="place" type="string" required="true">Where.</input></inputs>',
      body: 'Describe {input:place}.',
    }),
  );
});
afterEach(async () => await lab.remove());
beforeEach(() => {
  bodies = [];
  turns = [];
});

async function rye(args: readonly string[], options: FakeIoOptions = {}) {
  const io = createFakeIo({ cwd: lab.project, ...options });
  const env = { ...lab.env, HOME: lab.home, ...options.env };
  const open = (request: Parameters<typeof openRye>[0]) => Promise.resolve(openRye(request));
  const code = await main(args, { ...io, env, openRye: open, openThreadList: open });
  return { code, out: io.out(), err: io.err() };
}

const chat = (stdin: string, ...args: readonly string[]) => rye(['chat', ...args], { stdin });
const textsOf = (body: WireBody | undefined): string => JSON.stringify(body?.messages);
const newest = async (): Promise<string> => (await lab.rye().threads.list())[0]?.thread_id ?? '';

describe('rye chat without a terminal', () => {
  it('answers each line, in one thread with a run per message', async () => {
    const first = await chat('What is this?\n\nAnd that?\n');
    expect(first).toEqual({ code: 0, out: 'answer 1\nanswer 2\n', err: '' });
    expect(textsOf(bodies[0])).not.toContain('work order');
    expect(textsOf(bodies[1])).toMatch(/What is this\?[^]*answer 1[^]*And that\?/);
    const { document } = await lab.rye().threads.show(await newest());
    expect(document?.directive).toBe('rye/core/chat');
    expect(document?.runs).toHaveLength(2);
  });

  it('can only read the project, and --tools narrows that', async () => {
    await chat('Hi');
    const names = (bodies[0]?.tools ?? []).map(({ name }) => name ?? '').join(' ');
    expect(names).toContain('rye_file_system_read');
    expect(names).not.toMatch(/write|edit|bash/);
    await chat('Hi', '--tools', 'grep');
    const narrowed = (bodies[1]?.tools ?? []).map(({ name }) => name);
    expect(narrowed).toEqual(['rye_execute', 'rye_file_system_grep']);
    expect((await chat('Hi', '--tools', 'write')).err).toContain('unknown tool "write"');
  });

  it('joins lines that end in a backslash, and blocks', async () => {
    const said = await chat('one \\\ntwo\n"""\nthree\n\nfour\n"""\n"""five"""\n');
    expect(said.out).toBe('answer 1\nanswer 2\nanswer 3\n');
    expect(textsOf(bodies[0])).toContain(String.raw`one \ntwo`);
    expect(textsOf(bodies[1])).toContain(String.raw`three\n\nfour`);
    expect(textsOf(bodies[2])).not.toContain('\\"\\"\\"five');
  });

  it('runs commands, and sends no misspelt one', async () => {
    const cost = await chat('Hi\n/cost\n/tools\n/quit\nnever\n');
    expect(cost.out).toMatch(
      /^answer 1\n[^]*: 1 turn, 15 tokens, \$[^]*rye_file_system_read Reads/,
    );
    expect(bodies).toHaveLength(1);
    const typo = await chat('/cots\nHi\n');
    expect(typo).toMatchObject({ code: 2, out: '' });
    expect(typo.err).toMatch(/unknown command \/cots[^]*Did you mean \/cost\?/);
    expect(bodies).toHaveLength(1);
    await chat('/etc/hosts is what?\n /help is what?\n');
    expect(bodies).toHaveLength(3);
    expect(textsOf(bodies[2])).toContain(' /help is what?');
  });

  it('continues the last chat, @, --last or a thread by its ID, and refuses two of them', async () => {
    await chat('First', '--thread-id', 'talk-a');
    await rye(['ask', 'Between?']);
    for (const [args, before] of [
      [['--continue'], 'First'],
      [['--thread', 'talk-a'], 'First'],
      [['--resume', 'talk-a'], 'First'],
      [['@'], 'Between?'],
      [['--last'], 'Between?'],
    ] as const) {
      expect((await chat('More', ...args)).code, args.join(' ')).toBe(0);
      expect(textsOf(bodies.at(-1))).toContain(before);
      expect(textsOf(bodies.at(-1))).toContain('More');
    }
    expect((await chat('More', '--continue', '--last')).err).toContain('several threads');
    const missing = await chat('More', '--thread', 'nope');
    expect([missing.code, missing.out]).toEqual([6, '']);
  });

  it('starts with a directive, and grants each message its turns again', async () => {
    const said = await chat('More\nAnd more\n', 'tour', '--input', 'place=Ghent');
    expect(said).toMatchObject({ code: 0, out: 'answer 1\nanswer 2\nanswer 3\n' });
    expect(textsOf(bodies[0])).toContain('Describe Ghent.');
    const later = await chat('Last', 'tour', '--continue');
    expect(later.out).toBe('answer 4\n');
    const { document } = await lab.rye().threads.show(await newest());
    expect(document?.limits).toMatchObject({ turns: 4, spend: 0.5 });
  });

  it('ends with the status of the first message that fails', async () => {
    turns = [
      reply('fine'),
      { status: 401, error: { type: 'authentication_error', message: 'no' } },
    ];
    const failed = await chat('One\nTwo\nThree\n');
    expect([failed.code, failed.out]).toEqual([7, 'fine\n']);
    expect(failed.err).toContain('provider_');
    expect(bodies).toHaveLength(2);
  });

  it('stops at the budget of the conversation, which /budget extends', async () => {
    const spent = await chat('One\n', '--max-budget-usd', '0.000001');
    expect(spent.code).toBe(5);
    expect(bodies).toHaveLength(0);
    const more = await chat('/budget 0.4\nTwo\n', '--continue');
    expect(more).toMatchObject({ code: 0 });
    expect(more.out).toContain('answer 1\n');
  });

  it('prints one document with --json', async () => {
    const { code, out } = await chat('One\nTwo\n', '--json');
    expect(code).toBe(0);
    expect(JSON.parse(out)).toMatchObject({
      success: true,
      status: 'completed',
      messages: [
        { message: 'One', status: 'completed', result: 'answer 1' },
        { message: 'Two', status: 'completed', result: 'answer 2' },
      ],
      cost: { turns: 2 },
    });
  });

  it('switches the model, lists the tree, goes back and undoes', async () => {
    const model = await chat('One\n/model claude-haiku-5-5\nTwo\n', '--model', 'claude-sonnet-5-5');
    expect(model.code, model.err).toBe(0);
    expect(bodies.map((body) => body.model)).toEqual(['claude-sonnet-5-5', 'claude-haiku-5-5']);
    const undone = await chat('/undo\nThree\n/tree\n', '--continue');
    expect(undone.code, undone.err).toBe(0);
    expect(textsOf(bodies[2])).toContain('Three');
    expect(textsOf(bodies[2])).not.toContain('Two');
    expect(undone.out).toMatch(/● user: Three[^]*○ user: Two/);
    const root = await chat('/undo\n/undo\nFour\n', '--continue');
    expect(root.code, root.err).toBe(0);
    expect(textsOf(bodies[3])).not.toMatch(/One|Three/);
    expect(textsOf(bodies[3])).toContain('Four');
  });

  it('continues a chat with --continue, and no thread of another directive', async () => {
    await rye(['run', 'tour', '--input', 'place=Ghent']);
    const refused = await chat('Hi', '--continue');
    expect(refused).toMatchObject({ code: 6, out: '' });
    expect(refused.err).toContain('no thread of rye/core/chat');
    expect(bodies).toHaveLength(1);
    const other = await chat('Hi', 'tour', '--thread', await newest());
    expect(other.out).toBe('answer 2\n');
    await rye(['ask', 'Between?']);
    const last = await chat('Hi', 'tour', '--last');
    expect(last).toMatchObject({ code: 2, out: '' });
    expect(last.err).toMatch(/is of rye\/core\/ask, not of tour/);
    expect(bodies).toHaveLength(3);
  });

  it.each(['chat', 'ask'])(
    '%s moves a continued thread to --provider, or refuses it',
    async (command) => {
      const talk = async (...args: readonly string[]) =>
        command === 'ask' ? await rye(['ask', 'More?', ...args]) : await chat('More?', ...args);
      await talk();
      const refused = await talk('--continue', '--provider', 'nosuch');
      expect(refused).toMatchObject({ code: 6, out: '' });
      expect(refused.err).toContain('[model_not_found]');
      const elsewhere = await talk('--continue', '--provider', 'groq');
      expect([elsewhere.code, elsewhere.out]).toEqual([6, '']);
      expect(bodies).toHaveLength(1);
      expect((await talk('--continue', '--provider', 'anthropic')).out).toBe('answer 2\n');
    },
  );

  it('starts the directive again after /new, and then sends the message', async () => {
    const said = await chat('/new\nLook at the docs\n', 'tour', '--input', 'place=Ghent', '--json');
    expect(JSON.parse(said.out)).toMatchObject({
      messages: [
        { message: null, result: 'answer 1' },
        { message: null, result: 'answer 2' },
        { message: 'Look at the docs', result: 'answer 3' },
      ],
    });
    expect(textsOf(bodies[1])).not.toContain('Look at the docs');
    expect(textsOf(bodies[2])).toMatch(/Describe Ghent[^]*answer 2[^]*Look at the docs/);
  });

  it.each(['', 'One\n/new\n'])(
    '/budget counts for the message that starts a conversation: %j',
    async (before) => {
      const spent = await chat(`${before}/budget 0.000001\nTwo\n`, '--json');
      expect(spent.code).toBe(5);
      expect(JSON.parse(spent.out)).toMatchObject({
        success: false,
        error: { code: 'limit_spend' },
      });
      expect(bodies).toHaveLength(before === '' ? 0 : 1);
      const once = await chat('/budget 0.5\nOne\nTwo\n');
      expect(once.code, once.err).toBe(0);
    },
  );

  it('keeps the model that /model selects after /new', async () => {
    await chat('One\n/model claude-haiku-5-5\n/new\nTwo\n', '--model', 'claude-sonnet-5-5');
    expect(bodies.map((body) => body.model)).toEqual(['claude-sonnet-5-5', 'claude-haiku-5-5']);
  });

  const COMMANDS = [
    '/help',
    '/cost',
    '/budget 0.3',
    '/tools',
    '/model',
    '/tree',
    '/undo',
    '/compact',
    '/new',
    '/modle',
    '/undo no',
    '/budget no',
  ];

  it.each(COMMANDS)(
    'prints one document with --json and %s, which keeps every answer',
    async (command) => {
      for (const lines of [
        [command, 'One'],
        ['One', command, 'Two'],
      ]) {
        bodies = [];
        const { code, out } = await chat(`${lines.join('\n')}\n`, '--json');
        const document = JSON.parse(out) as Record<string, unknown>;
        expect(document['success'], out).toBe(code === 0);
        expect('error' in document).toBe(code !== 0);
        const messages = document['messages'] as readonly unknown[];
        expect(messages.length).toBe(
          bodies.filter((body) => !textsOf(body).includes('summar')).length,
        );
        if (messages.length > 0) expect(document['cost']).toBeDefined();
      }
    },
  );

  it('refuses a thread that another chat has open', async () => {
    await chat('Hi', '--thread-id', 'locked');
    const { lockChat } = await import('../../../src/kernel/app/chat-lock.ts');
    const held = lockChat(lab.project, 'locked');
    const second = await chat('Me too', '--thread', 'locked');
    expect([second.code, second.out]).toEqual([1, '']);
    expect(second.err).toMatch(/open in a chat of process \d+ \[thread_locked\]/);
    held.release();
    expect((await chat('Now', '--thread', 'locked')).code).toBe(0);
  });

  it('names what does not fit together', async () => {
    for (const [args, words] of [
      [['--continue', '--tools', 'read'], '--tools applies to a new chat'],
      [['tour', '--tools', 'read'], '--tools cannot be combined with a directive'],
      [['--input', 'a=b'], '--input needs a directive'],
    ] as const) {
      const { code, err } = await chat('Hi', ...args);
      expect([code, err]).toEqual([2, expect.stringContaining(words)]);
    }
    expect(bodies).toEqual([]);
  });
});
