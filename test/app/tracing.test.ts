import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, it } from 'vitest';
import type { RunHandle } from '../../src/kernel/app/run-types.ts';
import type { RunEvent } from '../../src/kernel/hooks/handlers.ts';
import { calls, reply, toolUse, type WireScript } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

interface Span {
  readonly key: string;
  readonly name: string;
  readonly parent: Span | undefined;
  readonly start: string;
}

type Spans = (options: {
  readonly open: (span: Span) => void;
  readonly close: (span: Span, event: RunEvent) => void;
}) => (event: RunEvent) => void;

const WORK = { directiveId: 'team/work' };
const LS = toolUse('rye_file_system_ls', {}, 'a');
const FAST_RETRY = { 'retry-after-ms': '5' };

/** The function that docs/library.md shows. */
async function shownSpans(folder: string): Promise<Spans> {
  const page = readFileSync('docs/library.md', 'utf8');
  const [, code = ''] = /```js file=spans\.mjs\n([\s\S]*?)```/.exec(page) ?? [];
  const file = path.join(folder, 'spans.mjs');
  writeFileSync(file, code);
  const { spans } = (await import(pathToFileURL(file).href)) as { readonly spans: Spans };
  return spans;
}

/** A project whose spans are written down: opened `+`, closed `-`, by their depth. */
async function traced(script: WireScript, metadata = '') {
  const lab = await libraryLab(script);
  const grants =
    '<permissions><execute><tool>rye/file-system/*</tool><directive>team/child</directive></execute></permissions>';
  await lab.directive('child', ['rye/file-system/ls']);
  await lab.directive('work', [], { metadata: `${grants}${metadata}` });
  const live: Span[] = [];
  const lines: string[] = [];
  const faults: string[] = [];
  const depth = ({ parent }: Span): number => (parent ? 1 + depth(parent) : 0);
  const spans = await shownSpans(lab.project);
  const subscriber = spans({
    open: (span) => {
      if (span.parent && !live.includes(span.parent)) faults.push(`${span.key} has no open parent`);
      live.push(span);
      lines.push(`${'  '.repeat(depth(span))}+${span.name}`);
    },
    close: (span, { timestamp }) => {
      if (!live.includes(span)) faults.push(`${span.key} is not open`);
      if (live.some(({ parent }) => parent === span)) faults.push(`${span.key} has open children`);
      if (timestamp < span.start) faults.push(`${span.key} ends before it starts`);
      live.splice(live.indexOf(span), 1);
      lines.push(`${'  '.repeat(depth(span))}-${span.name}`);
    },
  });
  const rye = lab.open({ subscribers: [subscriber] });
  return {
    lab,
    rye,
    lines,
    check: () => expect({ live, faults }).toEqual({ live: [], faults: [] }),
  };
}

const REQUEST = ['    +request', '    -request'];
const TOOL = ['    +tool', '    -tool'];
const turn = (...inner: readonly string[]) => ['  +turn', ...inner, '  -turn'];
const run = (...inner: readonly string[]) => ['+run', ...inner, '-run'];

describe('the spans that the documentation shows', () => {
  it.each<[string, WireScript, object, readonly string[]]>([
    [
      'of turns with tools, also of a refused call, which has none',
      [calls(LS, toolUse('rye_bash', { command: 'ls' }, 'b')), reply('Done.')],
      {},
      run(...turn(...REQUEST, ...TOOL), ...turn(...REQUEST)),
    ],
    [
      'of a retried request',
      [{ status: 529, headers: FAST_RETRY }, reply('Done.')],
      {},
      run(...turn(...REQUEST, ...REQUEST)),
    ],
    ['of a request that fails', [{ status: 401 }], {}, run(...turn(...REQUEST))],
    [
      'of a run at its limit',
      [calls(LS)],
      { limits: { turns: 1 } },
      run(...turn(...REQUEST, ...TOOL)),
    ],
    ['of a run that never starts a turn', [], { limits: { turns: 0 } }, run()],
    ['of a broken answer', [{ steps: [{ kind: 'reset' }] }, { status: 401 }], {}, []],
  ])('%s', async (_, script, request, expected) => {
    const { rye, lines, check } = await traced(script);
    await rye.run({ ...WORK, ...request });
    check();
    if (expected.length > 0) expect(lines).toEqual(expected);
    else expect(lines.filter((line) => line.trim() === '+request')).toHaveLength(2);
  });

  it('of a run that is cancelled in an answer', async () => {
    const { lab, rye, lines, check } = await traced(['hang']);
    const started = rye.start(WORK);
    await lab.server.request(0);
    started.abort();
    await started.outcome;
    check();
    expect(lines).toEqual(run(...turn(...REQUEST)));
  });

  it('of a run that is cancelled in a tool', async () => {
    const { rye, lines, check } = await traced([calls(LS), reply('Done.')]);
    const started: RunHandle = rye.start({
      ...WORK,
      handlers: { tool_call_start: (): void => started.abort() },
    });
    await started.outcome;
    check();
    expect(lines.filter((line) => line.trim() === '+tool')).toHaveLength(1);
  });

  it('of a child are inside of it, and a resumed run has its own', async () => {
    const child = { item_type: 'directive', item_id: 'team/child', parameters: {} };
    const { rye, lines, check } = await traced([
      calls(toolUse('rye_execute', child, 'a')),
      calls(LS),
      reply('The child is done.'),
      reply('Done.'),
      reply('Again.'),
    ]);
    const { threadId } = await rye.run(WORK);
    check();
    const at = lines.findIndex((line) => line.trim() === '+child');
    expect(lines[at + 1]).toBe(`  ${lines[at]?.replace('child', 'run')}`);
    expect(lines.filter((line) => line.trim() === '+run')).toHaveLength(2);
    await rye.recovery.resume({ threadId: String(threadId), message: 'Again.' });
    check();
    expect(lines.slice(-6)).toEqual(run(...turn(...REQUEST)));
  });
});
