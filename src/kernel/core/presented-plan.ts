import { isJsonObject, type JsonObject, type JsonValue } from './json.ts';
import { formatUsd } from './usage.ts';

/** The tool that presents a plan. */
export const PRESENT_PLAN_ID = 'rye/agent/present_plan';

/** A plan that a person approves as a whole. Its lists bound the calls that need no further approval. */
export interface PresentedPlan {
  readonly title: string;
  readonly steps: readonly { readonly title: string; readonly detail: string }[];
  /** Globs of the files that it may create or change, relative to the project. */
  readonly files: readonly string[];
  /** Command lines that it may run, exactly as they are. */
  readonly commands: readonly string[];
  /** IDs of other tools that it may call, with any input. */
  readonly tools: readonly string[];
  /** IDs of directives that it may start. */
  readonly directives: readonly string[];
  /** The most that the thread may spend from the approval on, in USD. */
  readonly costUsd: number;
}

/** Reads the input of a call that presents a plan. A list that is missing or malformed is empty, so that it covers nothing. */
export function readPlan(input: JsonObject): PresentedPlan {
  const { title, steps, cost_usd: cost } = input;
  return {
    title: textOr(title),
    steps: (Array.isArray(steps) ? steps : []).filter(isJsonObject).map((step) => ({
      title: textOr(step['title']),
      detail: textOr(step['detail']),
    })),
    files: textsOf(input['files']),
    commands: textsOf(input['commands']),
    tools: textsOf(input['tools']),
    directives: textsOf(input['directives']),
    costUsd: typeof cost === 'number' && Number.isFinite(cost) ? cost : 0,
  };
}

/**
 * Writes a plan as people read it: first everything that it covers, then the free texts. Further lines of a text are indented,
 * so that none looks like a heading.
 */
export function planText(plan: PresentedPlan): string {
  const { title, steps, files, commands, tools, directives, costUsd } = plan;
  const described = steps.map(({ title: step, detail }) =>
    detail === '' ? step : `${step}\n${detail}`,
  );
  return [
    ...section('Files that it may change:', files),
    ...section('Commands that it may run:', commands),
    ...section('Tools that it may call, with any input:', tools),
    ...section('Directives that it may start:', directives),
    `Money that it may spend: ${formatUsd(costUsd)}`,
    '',
    ...section('Aim:', [title]),
    ...section(
      'Steps:',
      described.map((step, at) => `${at + 1}. ${step}`),
    ),
  ]
    .join('\n')
    .trimEnd();
}

function section(heading: string, texts: readonly string[]): readonly string[] {
  if (texts.length === 0) return [];
  return [heading, ...texts.map((text) => `  ${text.replaceAll(/[\n\r]+/g, '\n     ')}`), ''];
}

function textOr(value: JsonValue | undefined): string {
  return typeof value === 'string' ? value : '';
}

function textsOf(value: JsonValue | undefined): readonly string[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === 'string') : [];
}
