import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { JsonObject } from '../../core/json.ts';
import { formatCost } from '../../core/usage.ts';
import { count } from '../output.ts';
import { type Colors } from '../terminal-text.ts';
import { oneLine } from '../visible.ts';
import { shortModel, shortUsd } from './meters.ts';
import { payloadOf } from './progress-line.ts';

/** Returns the first line of a run: its directive, model, limits and thread. */
export function headerLine(
  run: {
    readonly directive: string | undefined;
    readonly model: string;
    readonly limits: JsonObject;
    readonly threadId: string;
  },
  colors: Colors,
): string {
  const directive = run.directive?.replace(/^rye\/core\//, '');
  const parts = [
    ...(directive === undefined ? [] : [colors.bold(oneLine(directive))]),
    oneLine(shortModel(run.model)),
    ...limitText(run.limits),
    oneLine(run.threadId),
  ];
  return parts.join(colors.dim(' · '));
}

/** Returns the line of an event that only `-v` shows. */
export function detailOf(event: LogEvent | UnknownEvent): string | undefined {
  const hook = payloadOf(event, 'hook_fired');
  const turn = payloadOf(event, 'turn_started');
  const cost = payloadOf(event, 'cost');
  return hook?.matched === true
    ? `hook ${hook.id} on ${hook.event}: ${hook.outcome}, ${hook.duration_ms}ms`
    : turn?.request
      ? `turn ${turn.turn}: request to ${turn.request.provider}/${turn.request.model}, up to ${turn.request.input_tokens} tokens in, ${turn.request.max_tokens} out`
      : cost && `turn ${cost.turn} done: ${formatCost(cost.total)} so far`;
}

function limitText({ turns, spend }: JsonObject): readonly string[] {
  const parts = [
    ...(typeof turns === 'number' ? [count(turns, 'turn')] : []),
    ...(typeof spend === 'number' ? [shortUsd(spend)] : []),
  ];
  return parts.length === 0 ? [] : [`limit ${parts.join(', ')}`];
}
