import { PRESENT_PLAN_ID, readPlan } from '../../core/presented-plan.ts';
import { builtinTool, READING_TRAITS, type Tool, textOutput } from '../tool.ts';

const STEP = {
  type: 'object',
  properties: {
    title: { type: 'string', minLength: 1, description: 'What this step does, in one sentence.' },
    detail: { type: 'string', description: 'What a person has to know to judge it.' },
  },
  required: ['title'],
  additionalProperties: false,
} as const;

const TEXTS = { type: 'array', items: { type: 'string', minLength: 1 } } as const;

/**
 * `rye/agent/present_plan` shows a plan to a person, who approves it as a whole. Later calls of the thread inside of the plan need
 * no further approval; calls outside of it ask.
 */
export function createPresentPlanTool(): Tool {
  return builtinTool({
    id: PRESENT_PLAN_ID,
    description:
      'Presents a plan to a person, who approves it as a whole, changes it or denies it. Calls that it lists need no further approval; every other call that changes something asks. Present it once, complete, before the first change; present a new one if it has to change.',
    properties: {
      title: { type: 'string', minLength: 1, description: 'The aim, in one sentence.' },
      steps: { type: 'array', minItems: 1, items: STEP },
      files: {
        ...TEXTS,
        description:
          'Files that you will create or change: paths or globs such as src/**/*.ts. A name that starts with a dot has to be written out.',
      },
      commands: { ...TEXTS, description: 'Command lines that you will run, exactly.' },
      tools: { ...TEXTS, description: 'IDs of other tools that you will call.' },
      directives: { ...TEXTS, description: 'IDs of directives that you will start.' },
      cost_usd: {
        type: 'number',
        minimum: 0,
        description: 'The most that it may cost from now on.',
      },
    },
    required: ['title', 'steps', 'cost_usd'],
    traits: { ...READING_TRAITS, sequential: true, risk: 'safe' },
    presentsPlan: true,
    run: (input) =>
      textOutput('The plan is approved. Keep to it: every call outside of it asks a person.', {
        plan: { ...readPlanInput(input) },
      }),
  });
}

function readPlanInput(input: Parameters<typeof readPlan>[0]) {
  const { title, steps, files, commands, tools, directives, costUsd } = readPlan(input);
  return {
    title,
    steps: steps.map((step) => ({ ...step })),
    files,
    commands,
    tools,
    directives,
    cost_usd: costUsd,
  };
}
