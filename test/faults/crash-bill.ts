import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect } from 'vitest';
import type { EventPayloads } from '../../src/kernel/core/events.ts';
import type { Cost } from '../../src/kernel/core/usage.ts';
import { type MeteredAnswer, startMeteredServer } from '../helpers/metered-server.ts';
import type { Workspace } from '../helpers/workspace.ts';
import { startCli } from './world.ts';

/** USD per token of the default model: output, and input at its highest price. */
const OUTPUT_PRICE = 10 / 1e6;
const INPUT_PRICE = 2 / 1e6;
const DEAREST_INPUT_PRICE = 2.5 / 1e6;

/** A directive whose run may cost a quarter of a dollar. */
export async function writeStory({ project, rye }: Workspace): Promise<void> {
  const file = path.join(project, '.ai/directives/story.md');
  mkdirSync(path.dirname(file), { recursive: true });
  const metadata =
    '<metadata><description>d</description><category></category><author>a</author><limits spend="0.25"/></metadata>';
  const xml = `<directive name="story" version="1.0.0">\n${metadata}\n</directive>`;
  writeFileSync(file, `\`\`\`xml\n${xml}\n\`\`\`\n\nTell a story.\n`);
  expect((await rye(['sign', 'directive', 'story'])).code).toBe(0);
}

/** A kill: after so many output tokens, at once or stopped until so many more were sent. */
export interface Kill {
  readonly answer: MeteredAnswer;
  readonly after: number;
  readonly stopFor?: number;
}

/** The cost of a kill, and the amount booked for it, in USD. */
export interface Bill {
  /** The output that the server had sent. */
  readonly sent: number;
  readonly input: number;
  /** The most that the request's input can cost. */
  readonly inputBound: number;
  readonly booked: number;
  /** The part of it that no provider counted. */
  readonly estimated: number;
}

/** Kills a run in its first answer, resumes the thread without options, and returns the bills of both sides. */
export async function killOnce(here: Workspace, id: string, kill: Kill): Promise<Bill> {
  const server = await startMeteredServer((call) =>
    call === 0 ? kill.answer : { rate: 1000, tokens: 8 },
  );
  try {
    const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
    const world = { project: here.project, home: here.home, env };
    const { child, done } = await startCli(world, ['run', 'story', '--thread-id', id]);
    const call = await server.call(0);
    await call.reaches(kill.after);
    if (kill.stopFor !== undefined) {
      child.kill('SIGSTOP');
      await call.reaches(call.sent + kill.stopFor);
    }
    child.kill('SIGKILL');
    await Promise.all([done, call.ended]);
    const request = requestIn(here.project, id);
    const resumed = await here.json(['threads', 'resume', id, '--message', 'Be brief.'], { env });
    expect(resumed['error'] ?? null).toBeNull();
    expect(resumed['status']).toBe('completed');
    const cost = resumed['cost'] as Cost;
    const next = await server.call(1);
    return {
      sent: call.sent * OUTPUT_PRICE,
      input: call.inputTokens * INPUT_PRICE,
      inputBound: request.input_tokens * DEAREST_INPUT_PRICE,
      booked: cost.spend - next.inputTokens * INPUT_PRICE - next.sent * OUTPUT_PRICE,
      estimated: cost.estimated_spend_usd ?? 0,
    };
  } finally {
    await server.close();
  }
}

/** Returns what the log announced about the first call. */
function requestIn(project: string, id: string) {
  const log = path.join(project, '.ai/state/threads', id, 'transcript.jsonl');
  for (const line of readFileSync(log, 'utf8').split('\n')) {
    if (!line.includes('"turn_started"')) continue;
    const { payload } = JSON.parse(line) as { payload: EventPayloads['turn_started'] };
    if (payload.request) return payload.request;
  }
  throw new Error(`${log} announces no call`);
}

/** True if no more than three times the output was booked, and the input. */
export function isTight({ sent, inputBound, booked }: Bill): boolean {
  return booked <= 3 * sent + inputBound + 1e-6;
}
