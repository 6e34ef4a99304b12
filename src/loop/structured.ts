import { RyeError } from '../core/errors.ts';
import { isJsonObject, type JsonObject, parseJson } from '../core/json.ts';
import { type AssistantMessage, type ToolCallBlock, toolCallsOf } from '../core/message.ts';
import { OUTPUT_TOOL } from '../providers/provider.ts';
import type { Ending, Validation } from './ports.ts';
import { boundResult, resultDraft, settledDraft } from './results.ts';
import { hiddenMessage, type Run } from './run.ts';
import { type Settled, settleUnrun } from './tool-call.ts';

/** How often a model is asked for its result again, when it does not match the schema. */
const MAX_ASKS = 3;
/** A text that is nothing but one fenced block of JSON. */
const FENCED = /^```(?:json)?[ \t]*\n([^]*?)\n?```$/;

/** True while the run must end with an object that matches `behavior.schema`. Declared outputs are checked on their return. */
export function owesOutput(run: Run): boolean {
  return (
    run.behavior.schema !== undefined && run.plan.outputs.length === 0 && run.outputs === undefined
  );
}

/** What the last text of the model gives, checked. */
export async function readOutput(run: Run): Promise<Validation> {
  const text = run.lastText.trim();
  const value = parseJson(FENCED.exec(text)?.[1] ?? text);
  if (value === undefined || !isJsonObject(value)) {
    return { ok: false, problems: 'it is not one JSON object' };
  }
  return check(run, value);
}

async function check(run: Run, value: JsonObject): Promise<Validation> {
  const { schema } = run.behavior;
  return schema ? await run.ports.validate(schema, value) : { ok: true, input: value, coerced: [] };
}

/** Asks for the result in a turn of its own: the run is finishing, and only this is missing. */
export async function askForOutput(run: Run, problems: string): Promise<Ending | undefined> {
  const { schema } = run.behavior;
  const isHopeless = run.model.kind === 'literal' || run.outputAsks >= MAX_ASKS;
  if (isHopeless) return { kind: 'error', error: mismatch(problems).toJSON() };
  const isAgain = run.outputAsks > 0;
  run.outputAsks += 1;
  const text = [
    'Give your final result now, as one JSON object and nothing else. It must match this JSON Schema:',
    JSON.stringify(schema),
    ...(isAgain ? [`What you gave does not match: ${problems}`] : []),
  ].join('\n');
  await run.record([hiddenMessage('output_request', text)]);
  return undefined;
}

function mismatch(problems: string): RyeError {
  return new RyeError('outputs_missing', `the result does not match the schema: ${problems}`, {
    hint: 'Say in the directive what the result should hold, or make the schema less strict.',
    details: { problems },
  });
}

/** The call that carries the result, where it was asked for. */
export function outputCall(run: Run, message: AssistantMessage): ToolCallBlock | undefined {
  if (run.outputAsks === 0 || !owesOutput(run)) return undefined;
  return toolCallsOf(message).find(({ name }) => name === OUTPUT_TOOL.name);
}

/** Answers every call of the answer that carries the result: that one is checked, the others are not run. */
export async function settleOutput(
  run: Run,
  message: AssistantMessage,
  output: ToolCallBlock,
): Promise<Validation> {
  await run.record([{ event_type: 'message', payload: { message, turn: run.turn } }]);
  const checked: Validation =
    output.malformed === undefined
      ? await check(run, output.input)
      : { ok: false, problems: 'the arguments are not a JSON object' };
  for (const [position, call] of toolCallsOf(message).entries()) {
    const requested = { stage: 'requested', position, call } as const;
    const settled: Settled =
      call !== output
        ? settleUnrun(requested, call.name, { outcome: 'skipped', reason: 'the result was given' })
        : checked.ok
          ? {
              stage: 'settled',
              requested,
              tool: call.name,
              outcome: 'ok',
              content: [{ type: 'text', text: 'Taken.' }],
              durationMs: 0,
            }
          : settleUnrun(requested, call.name, { outcome: 'invalid', reason: checked.problems });
    const result = await boundResult(run, settled);
    await run.record([settledDraft(result), resultDraft(result, run.turn)]);
  }
  return checked;
}
