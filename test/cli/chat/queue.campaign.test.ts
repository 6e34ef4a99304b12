import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Key } from '../../../src/faces/ui/keyboard.ts';
import { graphemesOf } from '../../../src/faces/ui/terminal-text.ts';
import { type Lab, openLab } from '../../attacks/lab.ts';
import { type FakeTerminal, openFakeTerminal } from '../../helpers/fake-terminal.ts';
import { reply, text, type WireBody, type WireTurn } from '../../helpers/wire-server.ts';

let lab: Lab;
let bodies: WireBody[] = [];
let turns: WireTurn[] = [];

beforeEach(async () => {
  bodies = [];
  turns = [];
  lab = await openLab();
  await lab.model(({ body }) => {
    bodies.push(body);
    return turns.shift() ?? reply(`This is answer ${bodies.length}.`);
  });
});
afterEach(async () => await lab.remove());

function chat(...args: readonly string[]): FakeTerminal {
  return openFakeTerminal(['chat', ...args], { cwd: lab.project, env: lab.env });
}

/** An answer that never ends after its first half. */
const held = (): WireTurn => ({
  steps: [text('Half of an answer. '), { kind: 'wait', until: new Promise(() => {}) }],
});

/** The texts of a request, without the first message. */
const sent = (body: WireBody | undefined): string[] =>
  (body?.messages ?? [])
    .slice(1)
    .flatMap(({ content }) =>
      typeof content === 'string' ? [content] : content.map((block) => block.text ?? block.type),
    );

const deliveries = async () => {
  const [thread] = await lab.rye().threads.list();
  return await lab.rye().deliveries.list(thread?.thread_id ?? '');
};

const keysOf = (line: string): Key[] => [
  ...graphemesOf(line).map((one) => ({ name: one, text: one })),
  { name: 'enter' },
];

describe('a message that is typed while the model answers', () => {
  it('is put back into the field by Ctrl-C, before what is there, and is not sent', async () => {
    turns = [held()];
    const terminal = chat();
    await terminal.shows('› Ask anything');
    terminal.enter('Go.');
    await terminal.shows('Half of an answer.');
    await terminal.shows('› Type to queue a message; Ctrl-C stops the answer');
    terminal.enter('And cats?');
    await terminal.shows('  queued: And cats?');
    terminal.enter('And dogs?');
    await terminal.shows('  queued: And dogs?');
    terminal.type('And');
    terminal.press('escape');
    await terminal.shows(/■ stopped[^]*─\n› And cats\?\n\n {2}And dogs\?\n\n {2}And\n/);
    expect(terminal.screen()).not.toContain('queued:');
    expect((await deliveries()).map(({ state }) => state)).toEqual(['closed', 'closed']);
    terminal.press('enter');
    await terminal.shows(/answer 2[^]*✓ 1 turn/);
    expect(sent(bodies[1])).toEqual([
      'Half of an answer. ',
      '[Your answer was interrupted here by the user.]',
      'And cats?\n\nAnd dogs?\n\nAnd',
    ]);
    terminal.press('ctrl+d');
    expect(await terminal.ended).toBe(0);
  });

  it('is named when the chat ends, and goes to the model first when it continues', async () => {
    turns = [held()];
    const terminal = chat();
    await terminal.shows('› Ask anything');
    terminal.enter('Go.');
    await terminal.shows('Half of an answer.');
    terminal.enter('First.');
    await terminal.shows('  queued: First.');
    terminal.press('ctrl+d');
    expect(await terminal.ended).toBe(0);
    expect(terminal.screen()).toMatch(
      /› First\. {2}\(queued\)\nit goes to the model first when you continue/,
    );
    const again = chat('--continue');
    await again.shows(/Half of an answer\.\n {2}\(interrupted\)/);
    await again.shows('› Press Enter to send the queued message');
    await again.shows('  queued: First.');
    again.enter('Second.');
    await again.shows(/› First\. {2}\(delivered\)[^]*› Second\.\n[^]*answer 2/);
    expect(again.screen()).not.toContain('queued:');
    const [half, , first, second] = sent(bodies[1]);
    expect([half, second]).toEqual(['Half of an answer. ', 'Second.']);
    expect(first).toContain('First.');
    again.press('ctrl+d');
    expect(await again.ended).toBe(0);
  });

  it('is sent by Enter alone when the chat continues', async () => {
    turns = [held()];
    const terminal = chat();
    await terminal.shows('› Ask anything');
    terminal.enter('Go.');
    await terminal.shows('Half of an answer.');
    terminal.enter('First.');
    await terminal.shows('  queued: First.');
    terminal.hangUp();
    expect(await terminal.ended).toBe(130);
    const again = chat('--continue');
    await again.shows('› Press Enter to send the queued message');
    again.press('enter');
    await again.shows(/› First\. {2}\(delivered\)[^]*answer 2/);
    expect(JSON.stringify(bodies[1])).not.toContain('Continue exactly');
    again.press('ctrl+d');
    expect(await again.ended).toBe(0);
  });
});

describe('keys that are typed before the field is there', () => {
  it('are sent, and queued, as if they had been typed into it', async () => {
    const terminal = openFakeTerminal(['chat'], {
      cwd: lab.project,
      env: lab.env,
      typedAhead: [
        ...keysOf('one'),
        ...keysOf('/cost'),
        ...keysOf('two'),
        ...keysOf('  rest').slice(2, 6),
      ],
    });
    await terminal.shows(/› one\n[^]*› two {2}\(delivered\)/);
    await terminal.shows(/✓ [^]*─\n› rest\n/);
    expect(sent(bodies.at(-1)).join('\n')).toContain('two');
    terminal.press('ctrl+c', 'ctrl+d');
    expect(await terminal.ended).toBe(0);
  });

  it('end the chat if one is Ctrl-C', async () => {
    const terminal = openFakeTerminal(['chat'], {
      cwd: lab.project,
      env: lab.env,
      typedAhead: [...keysOf('one'), { name: 'ctrl+c' }],
    });
    expect(await terminal.ended).toBe(130);
    expect(bodies).toEqual([]);
  });
});

describe('the screen of a chat', () => {
  it('names model, folder, rights and money, at the start and at rest', async () => {
    const terminal = chat('--max-budget-usd', '0.5');
    await terminal.shows(/^chat · sonnet-5\.5 · \S+\/project · reads only · \$0\.50\n─/);
    await terminal.shows(
      /\n› Ask anything[^\n]*\n {2}sonnet-5\.5 · \S+ · reads only · \$0\.00 of \$0\.50$/,
    );
    terminal.enter('Go.');
    await terminal.shows(/sonnet-5\.5 · [^\n]*reads only · \$0\.00\d+ of \$0\.50 · context 1%$/);
    terminal.press('ctrl+d');
    expect(await terminal.ended).toBe(0);
  });

  it('shows a long paste by its size, sends it whole, and shows it in full on Ctrl-O', async () => {
    const lines = Array.from({ length: 300 }, (_, at) => `line ${at}`).join('\n');
    const terminal = chat();
    await terminal.shows('› Ask anything');
    terminal.type('Explain ');
    terminal.press({ name: 'paste', text: lines });
    terminal.enter(' now');
    await terminal.shows(/› Explain \[pasted 300 lines\] now\n[^]*answer 1/);
    expect(terminal.screen()).not.toContain('line 299');
    expect(JSON.stringify(bodies[0])).toContain(
      JSON.stringify(`Explain ${lines} now`).slice(1, -1),
    );
    terminal.press('up');
    await terminal.shows(/─\n› Explain \[pasted 300 lines\] now\n/);
    terminal.press('ctrl+o');
    await terminal.shows(/↑ 293 more lines\n {2}line 293\n[^]*line 299 now/);
    terminal.press('ctrl+c');
    terminal.press({ name: 'paste', text: 'x'.repeat(2000) }, 'left', 'right', 'backspace');
    await terminal.shows(/─\n› Ask anything/);
    terminal.press('ctrl+d');
    expect(await terminal.ended).toBe(0);
  });

  it('lets the person choose a model with the arrow keys, from the one in use', async () => {
    const terminal = chat();
    await terminal.shows('› Ask anything');
    terminal.enter('/model');
    await terminal.shows(/▸ claude-sonnet-5-5 +anthropic/);
    terminal.press('escape');
    await terminal.shows('› Ask anything');
    terminal.enter('/model');
    await terminal.shows(/▸ claude-sonnet-5-5/);
    terminal.press({ name: 'alt+x' });
    await terminal.shows(/─\n› x\n/);
    terminal.press('ctrl+c');
    terminal.enter('/model');
    await terminal.shows(/Model:\n/);
    terminal.type('haiku-5');
    await terminal.shows(/▸ claude-haiku-5-5/);
    terminal.press('enter');
    await terminal.shows('the next message uses claude-haiku-5-5');
    await terminal.shows(/\n {2}haiku-5\.5 · /);
    terminal.enter('Go.');
    await terminal.shows(/answer 1[^]*✓ 1 turn/);
    expect(bodies[0]?.model).toBe('claude-haiku-5-5');
    terminal.press('ctrl+d');
    expect(await terminal.ended).toBe(0);
  });
});
