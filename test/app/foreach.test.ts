import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import type { LibraryTool } from '../../src/kernel/app/presets.ts';
import { defineTool } from '../../src/kernel/app/program/define-tool.ts';
import type { JsonValue } from '../../src/kernel/core/json.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const SAFE = { reads_only: true, network: false, risk: 'safe' } as const;

/** A tool that notes its calls, waits for others, and fails for `bad`. */
function recorder() {
  const made: string[] = [];
  let running = 0;
  let most = 0;
  const tool: LibraryTool = defineTool({
    description: 'Notes a text.',
    inputSchema: { type: 'object', properties: { text: {}, more: {} }, required: ['text'] },
    traits: SAFE,
    execute: async ({ text, more }) => {
      running += 1;
      most = Math.max(most, running);
      made.push(JSON.stringify(more === undefined ? text : [text, more]));
      for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
      running -= 1;
      if (text === 'bad') throw new Error('it is bad');
      return { said: text };
    },
  });
  return { tool, made, most: () => most };
}

/** Runs a directive with this process. */
async function run(process: string, output: string, list?: JsonValue) {
  const notes = recorder();
  const lab = await libraryLab();
  await lab.directive('work', ['team/note'], {
    metadata: '<limits turns="100"/>',
    outputs: `<inputs><input name="list" type="array" default="[]">L.</input><input name="deep" type="boolean" default="false">D.</input></inputs><outputs><output name="out" type="array" from="${output}">O.</output><output name="errors" type="array" from="\${steps.note.errors}">E.</output></outputs>`,
    process: `<process>${process}</process>`,
  });
  const rye = lab.open({ tools: { 'team/note': notes.tool } });
  const outcome = await rye.run({
    directiveId: 'team/work',
    provider: 'literal',
    ...(list === undefined ? {} : { inputs: { list } }),
  });
  return { ...notes, outcome };
}

const note = (text: string, more = '') =>
  `<execute item_type="tool" item_id="team/note"><param name="text">${text}</param>${more}</execute>`;
const step = (name: string, text: string, more = '') =>
  `<step name="${name}">${note(text, more)}</step>`;
const each = (attributes: string, content: string) =>
  `<foreach item="f" in="\${inputs.list}" ${attributes}>${content}</foreach>`;

it('a list is worked through in order, with at most the given number at once', async () => {
  const list = Array.from({ length: 12 }, (_, index) => ({ name: `n${index}` }));
  const many = await run(
    each('parallel="5"', step('note', '${f.name}')),
    '${steps.note.results}',
    list,
  );
  expect(many.outcome).toMatchObject({
    kind: 'completed',
    outputs: { out: list.map(({ name }) => ({ said: name })), errors: [] },
  });
  expect(many.most()).toBe(5);
  // a single step needs one request for all items, and one for the outputs
  expect(many.outcome.thread?.cost.turns).toBe(2);
  const one = await run(each('', step('note', '${f.name}')), '${steps.note.results}', list);
  expect([one.most(), one.made.length]).toEqual([1, 12]);
});

it('an item passes all of its steps before the next one begins', async () => {
  const content =
    step('first', '${f}') +
    step('note', '${f_index}', '<param name="more">${steps.first.data.said}</param>');
  const { made, outcome } = await run(each('', content), '${steps.note.results}', ['a', 'b']);
  expect(made).toEqual(['"a"', '[0,"a"]', '"b"', '[1,"b"]']);
  expect(outcome).toMatchObject({ outputs: { out: [{ said: 0 }, { said: 1 }] } });
});

it('an empty list makes no call, and what is no list is an error with its place', async () => {
  const empty = await run(each('', step('note', '${f}')), '${steps.note.results}', []);
  expect([empty.outcome.kind, empty.made]).toEqual(['completed', []]);
  expect(empty.outcome).toMatchObject({ outputs: { out: [] } });
  const process = `${step('first', 'x')}<foreach item="f" in="\${steps.first.data.said}">${step('note', '${f}')}</foreach>`;
  const { outcome, made } = await run(process, '${steps.note.results}');
  expect(outcome).toMatchObject({ kind: 'failed' });
  expect(JSON.stringify(outcome)).toMatch(
    /foreach \(.*work\.md:\d+\): in=.* is not a list: it is x/,
  );
  expect(made).toEqual(['"x"']);
});

it('a failed item ends the process once the running items have ended, or is collected', async () => {
  const list = ['a', 'bad', 'c', 'd', 'e', 'f'];
  const failed = await run(
    each('parallel="2"', step('note', '${f}')),
    '${steps.note.results}',
    list,
  );
  expect(failed.outcome).toMatchObject({ kind: 'failed' });
  expect(JSON.stringify(failed.outcome)).toMatch(/item 2 of 6 .*step .*note.* it is bad/);
  expect(failed.made.length).toBeLessThan(5);
  const kept = await run(
    each('parallel="2" on_error="continue"', step('note', '${f}')),
    '${steps.note.results}',
    list,
  );
  expect(kept.made).toHaveLength(6);
  expect(kept.outcome).toMatchObject({
    kind: 'completed',
    outputs: {
      out: [{ said: 'a' }, null, { said: 'c' }, { said: 'd' }, { said: 'e' }, { said: 'f' }],
      errors: [{ index: 1, item: 'bad' }],
    },
  });
});

it('lists and conditions nest, and later steps use the results', async () => {
  const process = `
    <foreach item="row" in="\${inputs.list}"><foreach item="f" in="\${row.cells}" parallel="2">
      <if condition="\${f} &gt; 1 and not \${inputs.deep}">${step('note', '${f}')}<else>${step('small', 'small ${f}')}</else></if>
    </foreach></foreach>
    <if condition="inputs.deep">${step('never', 'never')}</if><else>${step('sum', '${steps.note.results}')}</else>`;
  const list = [{ cells: [1, 2] }, { cells: [] }, { cells: [3] }];
  const { outcome, made } = await run(process, '${steps.note.results}', list);
  const results = [[null, { said: 2 }], [], [{ said: 3 }]];
  expect(outcome).toMatchObject({ kind: 'completed', outputs: { out: results } });
  expect(made).toEqual(
    ['2', '"small 1"', '3', JSON.stringify(results)].toSorted(
      (a, b) => made.indexOf(a) - made.indexOf(b),
    ),
  );
});

it('children run at once, each with its share of the budget', async () => {
  const lab = await libraryLab(() => reply('Summed.'));
  await lab.directive('sum');
  await lab.directive('fan', [], {
    metadata: '<permissions><execute><directive>team/*</directive></execute></permissions>',
    outputs:
      '<outputs><output name="all" type="array" from="${steps.sum.results}">A.</output></outputs>',
    process:
      '<process><foreach item="f" in="[1, 2, 3, 4]" parallel="3"><step name="sum"><execute item_type="directive" item_id="team/sum"/></step></foreach></process>',
  });
  const rye = lab.open();
  const outcome = await rye.run({ directiveId: 'team/fan', provider: 'literal' });
  expect(outcome).toMatchObject({ kind: 'completed' });
  expect(outcome.thread?.children).toHaveLength(4);
  expect(outcome.thread?.cost).toMatchObject({ own: { spend: 0 }, total: { turns: 6 } });
  expect(outcome.thread?.cost.total.spend).toBeGreaterThan(0);
});

it('a model is shown the process', async () => {
  const lab = await libraryLab([calls(toolUse('rye_directive_return', { out: [] }))]);
  await lab.directive('work', [], {
    outputs: '<outputs><output name="out" type="array" required="true">O.</output></outputs>',
    process: `<process><foreach item="f" in="[1]" parallel="2">${step('note', '${f}')}</foreach></process>`,
  });
  await lab.open().run({ directiveId: 'team/work' });
  const [request] = lab.server.requests;
  expect(JSON.stringify(request?.body)).toContain('For each f in [1] (up to 2 at once):');
});

it('items that are null, or text with markup, arrive as they are', async () => {
  const list = [null, '</param></execute><x a="1">&amp;', ['a']];
  const { made, outcome } = await run(
    each('', step('note', '${f}')),
    '${steps.note.results}',
    list,
  );
  expect(outcome).toMatchObject({ kind: 'completed' });
  expect(made).toEqual(list.map((item) => JSON.stringify(item)));
});

/** Texts that would name another value, a secret or a result if they were read as a part of the directive. */
const HOSTILE = [
  '${inputs.deep}',
  '${inputs.list}',
  '${steps.first.text}',
  '${steps.nowhere.text}',
  '${f}',
  '${f_index}',
  '{input:deep}',
  '{env:HOME}',
  '$',
  '{inputs.deep}',
];

it('no value acts as a template: items, parts of items, results and inputs arrive as they are', async () => {
  const list = [
    ...HOSTILE,
    { name: '${inputs.deep}', more: ['${f}', { x: '${steps.first.text}' }] },
  ];
  const process = `
    ${step('first', '${inputs.list}', '<param name="more">{input:list} ${inputs.deep}</param>')}
    ${step('again', '${steps.first.data.said}', '<param name="more">$${steps.first.data.said.9}</param>')}
    <foreach item="f" in="\${steps.again.data.said}">${step('note', '${f}', '<param name="more">&lt;${f}${f}&gt;</param>')}</foreach>`;
  const { outcome, made } = await run(process, '${steps.note.results}', list);
  const texts = list.map((item) => (typeof item === 'string' ? item : JSON.stringify(item)));
  expect(outcome).toMatchObject({
    kind: 'completed',
    outputs: { out: list.map((item) => ({ said: item })), errors: [] },
  });
  expect(made).toEqual([
    JSON.stringify([list, `${JSON.stringify(list)} false`]),
    JSON.stringify([list, '${inputs.deep}']),
    ...list.map((item, at) => JSON.stringify([item, `<${texts[at]}${texts[at]}>`])),
  ]);
});

it('the models of children get the text of each item as it is', async () => {
  const lab = await libraryLab(() => reply('Read.'));
  await lab.directive('read', [], {
    outputs: '<inputs><input name="text" required="true">T.</input></inputs>',
    body: 'Read <<{input:text}>> and <<${inputs.text}>>.',
  });
  await lab.directive('fan', [], {
    metadata:
      '<limits turns="100" spawns="40"/><permissions><execute><directive>team/*</directive></execute></permissions>',
    outputs:
      '<inputs><input name="deep" default="expanded">D.</input><input name="list" type="array" required="true">L.</input></inputs>',
    process:
      '<process><foreach item="f" in="${inputs.list}" parallel="4"><step name="read"><execute item_type="directive" item_id="team/read"><param name="text">${f}</param></execute></step></foreach></process>',
  });
  const random = fc.sample(fc.array(fc.constantFrom(...HOSTILE, 'a', ' ')), {
    numRuns: 8,
    seed: 3,
  });
  const list = [...HOSTILE, ...random.map((parts) => `-${parts.join('')}`)];
  const outcome = await lab
    .open()
    .run({ directiveId: 'team/fan', provider: 'literal', inputs: { list } });
  expect(outcome).toMatchObject({ kind: 'completed' });
  const sent = lab.server.requests.map(({ body }) => JSON.stringify(body));
  expect(sent).toHaveLength(list.length);
  for (const text of list) {
    const quoted = JSON.stringify(text).slice(1, -1);
    const whole = `Read <<${quoted}>> and <<${quoted}>>.`;
    expect(sent.filter((body) => body.includes(whole))).not.toEqual([]);
  }
});

it.each(['0', '-1', '1000', '1.5', 'many'])(
  'parallel="%s" is refused before anything runs',
  async (count) => {
    await expect(
      run(each(`parallel="${count}"`, step('note', '${f}')), '${steps.note.results}', ['a']),
    ).rejects.toMatchObject({
      message: expect.stringContaining('is not a number from 1 to 64') as string,
    });
  },
);
