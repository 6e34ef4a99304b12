import { mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { main } from '../../../src/faces/cli/main.ts';
import { openRye } from '../../../src/open-rye.ts';
import { type Lab, openLab } from '../../attacks/lab.ts';
import { createFakeIo, type FakeIoOptions } from '../../helpers/fake-io.ts';
import { calls, reply, toolUse, type WireBody, type WireTurn } from '../../helpers/wire-server.ts';

let lab: Lab;
let bodies: WireBody[] = [];
let turns: WireTurn[] = [];

beforeEach(async () => {
  lab = await openLab();
  writeFileSync(path.join(lab.project, 'notes.txt'), 'Quolls are {input:question} spotted.');
  await lab.model(({ body }) => {
    bodies.push(body);
    return turns.shift() ?? reply('42');
  });
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

const toolsOf = (body: WireBody | undefined): readonly string[] =>
  (body?.tools ?? []).map(({ name }) => name ?? '').toSorted();

describe('rye ask', () => {
  it('prints the answer alone, of one request that can only read', async () => {
    expect(await rye(['ask', 'How many?'])).toEqual({ code: 0, out: '42\n', err: '' });
    expect(bodies).toHaveLength(1);
    expect(JSON.stringify(bodies[0]?.messages)).toContain('How many?');
    const read = ['glob', 'grep', 'ls', 'read'].map((name) => `rye_file_system_${name}`);
    expect(toolsOf(bodies[0]).filter((name) => name.includes('file_system'))).toEqual(read);
    expect(toolsOf(bodies[0]).join(' ')).not.toMatch(/write|edit|bash/);
  });

  it('is listed with its question, and answers the last one with --continue', async () => {
    await rye(['ask', 'How  many\nquolls?']);
    await rye(['ask', '--continue', 'And wombats?']);
    const { out } = await rye(['threads', '--json']);
    expect(JSON.parse(out).threads).toMatchObject([{ label: 'How many quolls?' }]);
  });

  it('passes files and piped text as they are', async () => {
    const asked = await rye(['ask', 'Spotted?', 'notes.txt'], { stdin: 'a diff\n' });
    expect(asked).toMatchObject({ code: 0, out: '42\n' });
    const prompt = JSON.stringify(bodies[0]?.messages);
    expect(prompt).toContain('Quolls are {input:question} spotted.\\n</file>');
    expect(prompt).toContain('<stdin>\\na diff\\n</stdin>');
  });

  it('spends at most what --max-budget-usd allows, which only lowers the limit', async () => {
    const spent = await rye(['ask', 'Cheap?', '--max-budget-usd', '0.000001']);
    expect([spent.code, spent.out, spent.err]).toEqual([
      5,
      '',
      expect.stringMatching(/\$0\.000001.*\[limit_spend\]/),
    ]);
    expect(bodies).toEqual([]);
    const raised = await rye(['ask', 'Dear?', '--max-budget-usd', '9']);
    expect([raised.code, raised.out]).toEqual([4, '']);
    expect(raised.err).toMatch(/spend=9 exceeds the \$0\.50 that .*\[raise_limits_required\]/);
    expect(raised.err).toContain('hint: Pass at most --max-budget-usd 0.5.');
    const wrong = await rye(['ask', 'How much?', '--max-budget-usd', '-1']);
    expect([wrong.code, wrong.out]).toEqual([2, '']);
    expect(await rye(['ask', 'Fine?', '--max-budget-usd', '0.2'])).toMatchObject({ out: '42\n' });
    const more = ['ask', '--continue', 'And now?', '--max-budget-usd'];
    expect((await rye([...more, '0.000001'])).code).toBe(5);
    expect(await rye([...more, '0.2'])).toMatchObject({ code: 0, out: '42\n' });
  });

  it('refuses missing, binary and too large files before anything costs', async () => {
    mkdirSync(path.join(lab.project, 'folder'), { recursive: true });
    writeFileSync(path.join(lab.project, 'binary'), Buffer.from([0, 255, 1]));
    writeFileSync(path.join(lab.project, 'large.txt'), 'x'.repeat(256 * 1024 + 1));
    // sparse: a file that is read whole would take this much memory
    writeFileSync(path.join(lab.project, 'huge'), '');
    truncateSync(path.join(lab.project, 'huge'), 8 * 1024 ** 3);
    for (const [file, words] of [
      ['nope.txt', 'file not found: nope.txt'],
      ['binary', 'binary is not UTF-8 text'],
      ['large.txt', 'large.txt: the input is larger than 256 KiB'],
      ['folder', 'folder is a folder'],
      ['huge', 'huge: the input is larger than'],
    ] as const) {
      const { code, out, err } = await rye(['ask', 'What?', file]);
      expect([code, out], file).toEqual([file === 'nope.txt' ? 6 : 2, '']);
      expect(err).toContain(words);
    }
    expect(bodies).toEqual([]);
  });

  it('--tools narrows; a tool that does more than read is refused by name', async () => {
    expect((await rye(['ask', 'What?', '--tools', 'read,grep'])).code).toBe(0);
    const wire = toolsOf(bodies[0]).filter((name) => name.includes('file_system'));
    expect(wire).toEqual(['rye_file_system_grep', 'rye_file_system_read']);
    for (const name of ['write', 'bash', 'raed']) {
      const { code, err } = await rye(['ask', 'What?', '--tools', `read,${name}`]);
      expect([code, err.includes(`unknown tool "${name}"`)]).toEqual([2, true]);
    }
    expect(bodies).toHaveLength(1);
  });

  it('finds what an earlier thread answered', async () => {
    turns = [reply('The last deploy moved seven wombats.')];
    await rye(['ask', 'What did the deploy do?']);
    turns = [
      calls(toolUse('rye_search', { query: 'wombats', include_threads: true }, 'toolu_1')),
      reply('Seven.'),
    ];
    expect(await rye(['ask', 'How many wombats?', '--tools', 'search'])).toMatchObject({
      code: 0,
      out: 'Seven.\n',
    });
    expect(toolsOf(bodies[1]).filter((name) => /search|file/.test(name))).toEqual(['rye_search']);
    expect(JSON.stringify(bodies[2]?.messages)).toMatch(/moved seven \*\*wombats\*\*/);
    const { out } = await rye(['search', 'wombats']);
    expect(out).toMatch(/^ {2}open: rye threads open rye\/core\/ask-\w+$/m);
  });

  it('uses a tool on the way to the answer, and shows that on a terminal only', async () => {
    turns = [
      calls(toolUse('rye_file_system_read', { path: 'notes.txt' }, 'toolu_1')),
      reply('Yes.'),
    ];
    const asked = await rye(['ask', 'Spotted?', '-v'], {
      stderrIsTty: true,
      env: { NO_COLOR: '1' },
    });
    expect(asked).toMatchObject({ code: 0, out: 'Yes.\n' });
    expect(asked.err).toMatch(/● read notes\.txt[^]*✓ 2 turns (?!.*resume:)/);
  });

  it('--schema prints JSON that matches', async () => {
    const schema = JSON.stringify({
      type: 'object',
      properties: { n: { type: 'integer' } },
      required: ['n'],
      additionalProperties: false,
    });
    turns = [reply('{"n": 4}')];
    const asked = await rye(['ask', 'How many?', '--schema', schema]);
    expect([asked.code, asked.err]).toEqual([0, '']);
    expect(JSON.parse(asked.out)).toEqual({ n: 4 });
    expect((await rye(['ask', 'How many?', '--schema', '{"type": '])).code).toBe(2);
    expect((await rye(['ask', 'How many?', '--schema', 'none.json'])).code).toBe(6);
  });

  it('is a thread like any other: listed, shown and resumed as @', async () => {
    const { thread_id: id, cost } = JSON.parse((await rye(['ask', 'First?', '--json'])).out);
    expect(cost.turns).toBe(1);
    expect((await rye(['threads', 'show', '@', '--json'])).out).toContain(`"${id}"`);
    turns = [reply('Second.')];
    const resumed = await rye(['threads', 'resume', '--last', '--message', 'Again', '--json']);
    expect(JSON.parse(resumed.out)).toMatchObject({ thread_id: id, result: 'Second.' });
    expect(JSON.stringify(bodies.at(-1)?.messages)).toContain('First?');
  });

  it('names the next step without a question, without a key and for a misspelt option', async () => {
    expect((await rye(['ask', ' '])).err).toContain('the question is missing');
    expect((await rye(['ask', 'What?', '--tool', 'read'])).err).toContain('--tools');
    const keyless = await rye(['ask', 'What?'], { env: { ANTHROPIC_API_KEY: '' } });
    expect(keyless.err).toMatch(/provider_key_missing[^]*ANTHROPIC_API_KEY/);
    expect(bodies).toEqual([]);
  });
});

describe('piped text', () => {
  it('is refused by a run that does not use it, and read by NAME=-', async () => {
    const refused = await rye(['run', 'hello'], { stdin: 'Ada' });
    expect(refused).toMatchObject({ code: 2, out: '' });
    expect(refused.err).toContain('--input NAME=-');
    const used = await rye(['run', 'hello', '--provider', 'literal', '--input', 'who=-'], {
      stdin: 'Ada',
    });
    expect(used).toMatchObject({ code: 0, out: 'greeting: Hello, Ada!\n' });
  });
});
