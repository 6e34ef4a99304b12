import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { WireRequest, WireStep, WireTurn } from '../helpers/wire-server.ts';

/** A call that the scripted model makes, found again by its mark in the request. */
interface Step {
  readonly mark: string;
  readonly tool: WireStep;
}

function bash(mark: string): Step {
  const input = JSON.stringify({ command: `echo ${mark} >> marks.log` });
  return {
    mark,
    tool: { kind: 'tool', name: 'rye_bash', chunks: [input.slice(0, 9), input.slice(9)] },
  };
}

const helper: Step = {
  mark: 'helper',
  tool: {
    kind: 'tool',
    name: 'rye_execute',
    chunks: [JSON.stringify({ item_type: 'directive', item_id: 'helper', parameters: {} })],
  },
};

const apart: Step = {
  mark: 'helper',
  tool: {
    kind: 'tool',
    name: 'rye_execute',
    chunks: [
      JSON.stringify({ item_type: 'directive', item_id: 'helper', parameters: {}, async: true }),
    ],
  },
};

const again: Step = {
  mark: '"async":false',
  tool: {
    kind: 'tool',
    name: 'rye_execute',
    chunks: [
      JSON.stringify({ item_type: 'directive', item_id: 'helper', parameters: {}, async: false }),
    ],
  },
};

const wait: Step = {
  mark: 'wait_threads',
  tool: {
    kind: 'tool',
    name: 'rye_agent_threads_orchestrator',
    chunks: [JSON.stringify({ operation: 'wait_threads' })],
  },
};

/** Calls of one answer each, in order. */
const WORK: readonly (readonly Step[])[] = [
  [bash('mark-a')],
  [helper],
  [bash('mark-b'), bash('mark-c')],
];
/** Follows when a person asks for more. */
const MORE: readonly (readonly Step[])[] = [
  [bash('mark-d')],
  [again],
  [bash('mark-e'), bash('mark-f')],
];
const HELP: readonly (readonly Step[])[] = [[bash('mark-h')]];
/** Like the first, with the child in the background. */
const SPREAD: readonly (readonly Step[])[] = [[bash('mark-a')], [apart], [wait], [bash('mark-b')]];

/** Every mark that a whole run leaves. */
export const MARKS = ['mark-a', 'mark-h', 'mark-b', 'mark-c'] as const;

const USAGE = { input_tokens: 1000, output_tokens: 100 };

/**
 * A model that does its steps one after the other, deriving the remaining steps from the conversation: a call that was not
 * started is repeated, one that may have had side effects is not.
 */
export function marksModel(request: WireRequest): WireTurn {
  const text = JSON.stringify(request.body.messages);
  const plan = planOf(text);
  for (const answer of plan) {
    const open = answer.filter((step) => isOpen(step, request));
    if (open.length > 0) {
      return {
        steps: [{ kind: 'text', chunks: ['Going ', 'on.'] }, ...open.map(({ tool }) => tool)],
        usage: USAGE,
      };
    }
  }
  return { steps: [{ kind: 'text', chunks: ['All marks ', 'are left.'] }], usage: USAGE };
}

function planOf(text: string): typeof WORK {
  if (text.includes('HELP: leave the mark')) return HELP;
  if (text.includes('SPREAD: leave the marks')) return SPREAD;
  return text.includes('AGAIN: leave more marks') ? [...WORK, ...MORE] : WORK;
}

function isOpen({ mark }: Step, { body }: WireRequest): boolean {
  const blocks = body.messages.flatMap(({ content }) =>
    typeof content === 'string' ? [] : content,
  );
  const calls = blocks.filter(
    (block) => block['type'] === 'tool_use' && JSON.stringify(block['input']).includes(mark),
  );
  return !calls.some(({ id }) => {
    const result = blocks.find((block) => block['tool_use_id'] === id);
    return result !== undefined && !JSON.stringify(result).includes('was not started');
  });
}

/** Counts each mark in the file that the commands write. */
export function marksIn(project: string): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  let text = '';
  try {
    text = readFileSync(path.join(project, 'marks.log'), 'utf8');
  } catch {
    return counts; // no command has run yet
  }
  for (const line of text.split('\n').filter((one) => one !== '')) {
    counts.set(line, (counts.get(line) ?? 0) + 1);
  }
  return counts;
}
