import { expect, it, onTestFinished } from 'vitest';
import { openTerminal } from '../helpers/terminal.ts';
import { asking, expectCompleted, pendingQuestion } from './asking.ts';
import { payloads } from './house.ts';

const LIMIT = 300_000;

it(
  'a question of a server is a request in the log before it is listed, and rye answer gives the server the values',
  async () => {
    const { here, answers, ended, request } = await pendingQuestion();
    const { id, thread_id: threadId } = request;
    expect(request).toMatchObject({
      kind: 'question',
      tool: 'mcp/gate/deploy',
      rule: 'MCP server gate',
      preview: { format: 'question', schema: { required: ['region'] } },
    });
    expect(request.preview.text).toBe('MCP server gate asks: Which \u{FFFD}[31mregion?');
    expect((await here.cli(['approvals'])).stdout).toContain('MCP server gate asks: Which');
    expect(payloads(here.log(threadId), 'approval_requested')).toMatchObject([
      { request: { id, call_id: 'deploy-0.question-1' } },
    ]);
    const wrong = await here.json(['answer', id, '{"region": "mars"}'], 2);
    expect(JSON.stringify(wrong)).toContain('must be one of');
    const typed = await here.json(['answer', id, '{"region": "eu", "count": "2"}'], 2);
    expect(typed).toMatchObject({ error: { code: 'invalid_input' } });
    expect(answers()).toEqual([]);
    await here.json(['answer', id, '{"region": "eu", "count": 2}']);
    await expectCompleted(here, ended);
    expect(answers()).toEqual([{ action: 'accept', content: { region: 'eu', count: 2 } }]);
    expect(payloads(here.log(threadId), 'approval_decided')).toMatchObject([
      { approval_id: id, outcome: 'answered', decisions: [{ decision: { decision: 'answer' } }] },
    ]);
    expect(payloads(here.log(threadId), 'tool_settled')).toMatchObject([{ outcome: 'ok' }]);
    expect(await here.json(['approvals', 'verify', id])).toMatchObject({ success: true });
  },
  LIMIT,
);

it(
  'rye deny declines: the server goes on without an answer',
  async () => {
    const { here, answers, ended, request } = await pendingQuestion();
    await here.json(['deny', request.id, '--comment', 'Not today.']);
    const threadId = await expectCompleted(here, ended);
    expect(answers()).toEqual([{ action: 'decline' }]);
    expect(payloads(here.log(threadId), 'approval_decided')).toMatchObject([{ outcome: 'denied' }]);
  },
  LIMIT,
);

it(
  'without a person who can be asked the question is cancelled at once, with a notice and a note in the log',
  async () => {
    const { here, answers } = await asking();
    const result = await here.cli(['run', 'deployer']);
    expect([result.code, answers()], result.stderr).toEqual([0, [{ action: 'cancel' }]]);
    expect(result.stderr).toContain('the question of the MCP server gate was cancelled');
    const { threads } = (await here.json(['threads', 'list'])) as {
      threads: readonly { thread_id: string }[];
    };
    const log = here.log(threads[0]?.thread_id ?? '');
    expect(payloads(log, 'approval_requested')).toEqual([]);
    expect(payloads(log, 'note')).toContainEqual(
      expect.objectContaining({
        details: expect.objectContaining({ call_id: 'deploy-0', tool: 'mcp/gate/deploy' }),
      }),
    );
  },
  LIMIT,
);

it(
  'a cancelled thread withdraws the question',
  async () => {
    const { here, answers, ended, request } = await pendingQuestion();
    await here.json(['threads', 'cancel', request.thread_id]);
    await ended;
    expect(await here.waiting()).toEqual([]);
    expect(answers()).toEqual([{ action: 'cancel' }]);
    expect(payloads(here.log(request.thread_id), 'approval_decided')).toMatchObject([
      { outcome: 'withdrawn' },
    ]);
    expect(await here.json(['verify', 'thread', request.thread_id])).toMatchObject({
      success: true,
    });
  },
  LIMIT,
);

it(
  'a question among several calls of the server is cancelled: nothing names the call that asks',
  async () => {
    const both = await asking({
      input: { together: true },
      parallel: 2,
      policy: { wait_inline: '120s' },
    });
    await expectCompleted(both.here, both.here.cli(['run', 'deployer', '--json']));
    expect(both.answers()).toEqual([{ action: 'cancel' }, { action: 'cancel' }]);
  },
  LIMIT,
);

it(
  'a program answers with onApproval',
  async () => {
    const { here, answers } = await asking();
    const outcome = await here.rye().run({
      directiveId: 'deployer',
      onApproval: ({ kind }) => {
        expect(kind).toBe('question');
        return { decision: 'answer', answer: { region: 'us' } };
      },
    });
    expect([outcome.kind, answers()]).toEqual([
      'completed',
      [{ action: 'accept', content: { region: 'us' } }],
    ]);
  },
  LIMIT,
);

it(
  'at a terminal the dialog shows the form of the server, and the call continues with what was picked',
  async () => {
    const { here, answers } = await asking();
    const terminal = await openTerminal({
      cwd: here.project,
      home: here.home,
      columns: 100,
      env: here.env,
    });
    onTestFinished(() => terminal.close());
    terminal.run('run deployer');
    await terminal.shows(/MCP server gate asks: Which/);
    await terminal.shows(/us/);
    terminal.press('Down', 'Enter');
    await terminal.shows(/count/);
    terminal.press('3', 'Enter');
    await terminal.shows('exit=0');
    expect(answers()).toEqual([{ action: 'accept', content: { region: 'us', count: 3 } }]);
  },
  LIMIT,
);
