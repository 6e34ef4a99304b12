import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { composeHandlers, type HandlerMap } from '../../src/kernel/hooks/handlers.ts';
import { ECHO, echo, SCENARIOS } from './scenarios.ts';
import { answers, hangs, planOf, play, type Script, traceLine } from './scripted.ts';

const SEQUENTIAL = { ...planOf().settings, tools_parallel: 1 };

function shown(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/**
 * The events of a run, with what hooks and handlers are asked and told between them. `- ` is an event in the log, `? ` a question
 * that can decide something, `! ` what is only told.
 */
async function orderOf(script: Script): Promise<string> {
  const lines: string[] = [];
  const ask = (
    who: string,
    { call_id, turn }: { call_id?: unknown; turn?: unknown },
  ): undefined => {
    lines.push(`? ${who} ${shown(call_id ?? turn)}`);
  };
  const handlers: HandlerMap = {
    context_transform: (context) => ask('context_transform', context),
    system_transform: (context) => ask('system_transform', context),
    tool_gate: (context) => ask('tool_gate', context),
    tool_unknown: (context) => ask('tool_unknown', context),
    tool_error: (context) => ask('tool_error', context),
    tool_transform: (context) => ask('tool_transform', context),
  };
  const told = (event: string, context: JsonObject): void => {
    const { call_id: callId, turn } = context;
    lines.push(`${event === 'tool_after' ? '!' : '?'} hook ${event} ${shown(callId ?? turn)}`);
  };
  const { outcome } = await play({
    ...script,
    ports: { ...script.ports, handlers: () => composeHandlers(handlers) },
    gate: (context) => {
      told('tool_gate', context);
      return script.gate?.(context) ?? {};
    },
    onHook: told,
    onEvent: (event) => {
      lines.push(`- ${traceLine(event)}`);
      script.onEvent?.(event);
    },
  });
  return `${[...lines, `= ${outcome.kind}`].join('\n')}\n`;
}

describe('the order of a run', () => {
  // Requirement: turn-order
  it.each(SCENARIOS)('$name', async ({ name, script }) => {
    const file = `../golden/traces/${name.replaceAll(' ', '-')}.txt`;
    await expect(await orderOf(script)).toMatchFileSnapshot(file);
  });

  it('aborted', async () => {
    const cancel = new AbortController();
    const order = await orderOf({
      tools: ECHO,
      turns: [answers('', [echo('a')]), hangs('Thinking about')],
      signal: cancel.signal,
      onEvent: ({ event_type }) => {
        if (event_type === 'token_delta') cancel.abort();
      },
    });
    await expect(order).toMatchFileSnapshot('../golden/traces/aborted.txt');
  });

  it('aborted between the calls of a batch', async () => {
    const cancel = new AbortController();
    const order = await orderOf({
      plan: { settings: SEQUENTIAL },
      tools: ECHO,
      turns: [answers('', [echo('a'), echo('b'), echo('c')])],
      signal: cancel.signal,
      onEvent: ({ event_type }) => {
        if (event_type === 'tool_settled') cancel.abort();
      },
    });
    await expect(order).toMatchFileSnapshot('../golden/traces/aborted-batch.txt');
  });
});
