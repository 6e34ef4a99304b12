import { expect } from 'vitest';
import type { OpenRyeOptions } from '../../src/kernel/app/api/rye.ts';
import type { RunRequest } from '../../src/kernel/app/run-types.ts';
import type { EventPayloads, EventType } from '../../src/kernel/core/events.ts';
import type { RunEvent } from '../../src/kernel/hooks/handlers.ts';
import {
  calls,
  reply,
  type WireBlock,
  type WireRequest,
  type WireStep,
} from '../helpers/wire-server.ts';
import { type LibraryLab, libraryLab } from './library-lab.ts';

export type Tools = NonNullable<RunRequest['tools']>;
type ProgramTool = NonNullable<Tools[string]>;

/** A safe tool of the program that only reads. */
export const toolOf = (
  execute: ProgramTool['execute'],
  schema: ProgramTool['inputSchema'] = { type: 'object' },
  traits: ProgramTool['traits'] = {},
): ProgramTool => ({
  description: 'A tool.',
  inputSchema: schema,
  traits: { reads_only: true, network: false, risk: 'safe', ...traits },
  execute,
});

interface Made {
  readonly lab: LibraryLab;
  readonly events: readonly RunEvent[];
  readonly requests: readonly WireRequest[];
  /** The results that the model read, by call, in their order. */
  readonly results: Readonly<Record<string, string>>;
}

/** Runs a directive that is granted these tools, whose model makes these batches of calls and then answers. */
export async function made(
  batches: readonly (readonly WireStep[])[],
  { tools = {}, ...request }: Partial<RunRequest> & { readonly grants?: readonly string[] } = {},
  options: Partial<OpenRyeOptions> = {},
): Promise<Made> {
  const { grants = Object.keys(tools), ...more } = request;
  const lab = await libraryLab([...batches.map((batch) => calls(...batch)), reply('Done.')]);
  await lab.directive('work', grants);
  const events: RunEvent[] = [];
  const outcome = await lab.open(options).run({
    ...(more as object),
    directiveId: 'team/work',
    tools,
    onEvent: (event) => void events.push(event as RunEvent),
  });
  expect(outcome).toMatchObject({ kind: 'completed' });
  return { lab, events, requests: lab.server.requests, results: resultsOf(lab.server.requests) };
}

/** The results in the last of these requests, by call. */
export function resultsOf(requests: readonly WireRequest[]): Readonly<Record<string, string>> {
  const blocks = (requests.at(-1)?.body.messages ?? []).flatMap(({ content }) =>
    typeof content === 'string' ? [] : content,
  );
  return Object.fromEntries(
    blocks.flatMap(({ tool_use_id: id, content }) =>
      id === undefined ? [] : [[id, text(content)]],
    ),
  );
}

function text(content: WireBlock['content'] = ''): string {
  if (typeof content === 'string') return content;
  return content.map((block) => block.text ?? block.type).join('\n');
}

/** The payloads of the events of this type. */
export function payloads<T extends EventType>(
  events: readonly RunEvent[],
  type: T,
): readonly EventPayloads[T][] {
  const found = events.filter(({ event_type }) => event_type === type);
  return found.map(({ payload }) => payload as EventPayloads[T]);
}
