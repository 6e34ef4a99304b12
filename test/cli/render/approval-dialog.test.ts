import picocolors from 'picocolors';
import { expect, it } from 'vitest';
import type { DecideRequest, ListedApproval } from '../../../src/app/api/approvals.ts';
import type { KeyHandlers } from '../../../src/cli/keyboard.ts';
import { createApprovalDialog } from '../../../src/cli/render/approval-dialog.ts';

const REQUEST: ListedApproval = {
  id: 'apr-1',
  thread_id: 't-1',
  root_thread_id: 't-1',
  kind: 'call',
  state: 'pending',
  tool: 'rye/bash',
  capability: 'rye.execute.tool.rye.bash',
  reason: 'It pushes.',
  rule: 'directive',
  input: { command: 'git push' },
  input_sha256: '',
  request_sha256: '',
  preview: { title: 'Run a command', format: 'command', text: 'git push' },
  approvers: [],
  quorum: 1,
  scopes: ['once', 'arguments', 'tool'],
  created_at: '',
  expires_at: '',
  decisions: [],
};

/** Shows one request, types the keys, and returns the decisions and the screen. */
async function type(keys: readonly string[], request: ListedApproval = REQUEST) {
  const decisions: Omit<DecideRequest, 'id'>[] = [];
  const printed: string[] = [];
  let handlers: KeyHandlers | undefined;
  let footer: readonly string[] = [];
  let isClosed = false;
  const dialog = createApprovalDialog(
    {
      openKeyboard: (given) => {
        handlers = given;
        return Promise.resolve({
          suspend: () => {},
          close: () => {
            isClosed = true;
          },
        });
      },
    },
    {
      print: (lines) => void printed.push(...lines),
      setFooter: (given) => {
        footer = given?.lines ?? [];
      },
      redraw: () => {},
    },
    picocolors.createColors(false),
  );
  dialog.onRequest(request, (decision) => {
    decisions.push(decision);
    return Promise.resolve({ ...request, state: 'approved', missing: 0, resumed: false });
  });
  const first = footer.join('\n');
  for (const key of keys) {
    handlers?.onKey(key.length === 1 ? { name: key.toLowerCase(), text: key } : { name: key });
    await new Promise(setImmediate);
  }
  return { decisions, printed, first, isClosed, isThere: dialog.isThere(request.id) };
}

it('shows what would run and the keys', async () => {
  const { first, isThere } = await type([]);
  expect(first).toMatch(/Run a command[^]*git push[^]*It pushes\.[^]*y once · t this thread/);
  expect(isThere).toBe(true);
});

it.each<readonly [string, readonly string[], object]>([
  ['y approves at once', ['y'], { decision: 'approve' }],
  ['t approves for the thread', ['t'], { decision: 'approve', scope: 'tool' }],
  [
    'n denies with a reason',
    ['n', 'n', 'o', 'x', 'backspace', 'enter'],
    { decision: 'deny', comment: 'no' },
  ],
])('%s', async (_what, keys, decision) => {
  const { decisions, isClosed, isThere } = await type(keys);
  expect(decisions).toEqual([decision]);
  expect([isClosed, isThere]).toEqual([true, false]);
});

it('e changes the input, and refuses what is no object', async () => {
  const end = ['backspace', ',', '"', 'a', '"', ':', '1', '}'];
  const { decisions } = await type(['e', ...end, 'enter']);
  expect(decisions).toEqual([{ decision: 'approve', input: { command: 'git push', a: 1 } }]);
  const refused = await type(['e', 'backspace', 'enter']);
  expect(refused.decisions).toEqual([]);
  expect(refused.printed).toEqual(['The input is not a JSON object.']);
});

it('a question is answered in its line: a text as it is, else JSON', async () => {
  const preview = { title: 'Question', format: 'question', text: 'Which?' } as const;
  const question = (schema: ListedApproval['input']): ListedApproval => {
    return { ...REQUEST, kind: 'question', preview: { ...preview, schema } };
  };
  const text = await type(['7', 'enter'], question({ type: 'string' }));
  expect(text.decisions).toEqual([{ decision: 'answer', answer: '7' }]);
  const number = await type(['7', 'enter'], question({ type: 'number' }));
  expect(number.decisions).toEqual([{ decision: 'answer', answer: 7 }]);
});

it('d and ? explain, escape leaves a line, and Ctrl-C leaves the request pending', async () => {
  const shown = await type(['d', '?', 'n', 'escape', 'ctrl+c']);
  expect(shown.printed.join('\n')).toMatch(/approvers[^]*Ctrl-C {2}leave it pending/);
  expect([shown.decisions, shown.isClosed, shown.isThere]).toEqual([[], true, false]);
});
