import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { chatCall, chatText, startChatServer } from '../helpers/chat-server.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const STRICT: JsonObject = {
  type: 'object',
  properties: { n: { type: 'integer' } },
  required: ['n'],
  additionalProperties: false,
};
/** Nested, with members that may be missing, and others that are not listed. */
const REVIEW: JsonObject = {
  type: 'object',
  properties: {
    verdict: { enum: ['approve', 'reject'] },
    findings: {
      type: 'array',
      items: {
        type: 'object',
        properties: { file: { type: 'string' }, line: { type: 'integer' } },
        required: ['file'],
      },
    },
  },
  required: ['verdict', 'findings'],
};
const OUTPUTS =
  '<outputs><output name="verdict" type="string" required="true">The verdict.</output><output name="note" type="string">Anything else.</output></outputs>';
const RETURN = 'rye_directive_return';

/** One answer of the model: a text, or a return with these arguments. */
type Answer = string | { readonly returns: JsonObject };

interface Body {
  readonly tools?: readonly {
    readonly name?: string;
    readonly input_schema?: JsonObject;
    readonly function?: { readonly name: string; readonly parameters: JsonObject };
  }[];
  readonly tool_choice?: unknown;
  readonly output_config?: { readonly format?: { readonly schema: JsonObject } };
  readonly response_format?: { readonly json_schema: { readonly schema: JsonObject } };
}

/** The two wires: how they carry the native format and the schema of the return. */
const WIRES = {
  anthropic: {
    format: ({ output_config: config }: Body) => config?.format?.schema,
    returning: ({ tools = [] }: Body) => tools.find(({ name }) => name === RETURN)?.input_schema,
  },
  openai: {
    format: ({ response_format: format }: Body) => format?.json_schema.schema,
    returning: ({ tools = [] }: Body) =>
      tools.find(({ function: tool }) => tool?.name === RETURN)?.function?.parameters,
  },
} as const;

interface Given {
  readonly schema?: JsonObject;
  readonly outputs?: string;
  readonly answers: readonly Answer[];
}

/** Runs a directive on one wire. */
async function given(wire: keyof typeof WIRES, { schema, outputs, answers }: Given) {
  const lab = await libraryLab(
    answers.map((answer, index) =>
      typeof answer === 'string'
        ? reply(answer)
        : calls(toolUse(RETURN, answer.returns, `o${index}`)),
    ),
  );
  const chat = await startChatServer(
    answers.map((answer, index) => ({
      steps:
        typeof answer === 'string'
          ? chatText(answer)
          : chatCall(0, RETURN, answer.returns, `o${index}`),
    })),
  );
  onTestFinished(() => chat.close());
  const file = path.join(lab.project, '.ai/config/agent/providers/lab.yaml');
  mkdirSync(path.dirname(file), { recursive: true });
  const model = {
    context_window: 100_000,
    max_output_tokens: 4000,
    pricing: { input: 1, output: 1 },
    capabilities: ['tools', 'forced_tools', 'structured_output'],
  };
  const models = { general: model };
  writeFileSync(
    file,
    JSON.stringify({ kind: 'openai', dialect: 'openai', base_url: chat.url, models }),
  );
  const rye = lab.open();
  await rye.items.sign('config', 'agent/providers/lab');
  await lab.directive('work', [], outputs === undefined ? {} : { outputs });
  const outcome = await rye.run({
    directiveId: 'team/work',
    ...(schema === undefined ? {} : { outputSchema: schema }),
    ...(wire === 'openai' ? { provider: 'lab', model: 'general' } : { provider: 'anthropic' }),
  });
  const requests = wire === 'openai' ? chat.requests : lab.server.requests;
  return { outcome, bodies: requests.map(({ body }) => body as unknown as Body) };
}

describe.each(['anthropic', 'openai'] as const)('a schema of the result on %s', (wire) => {
  const { format, returning } = WIRES[wire];

  // Requirement: structured-result
  it('is in the first request, natively and in the return tool, and a matching answer is enough', async () => {
    const review = { verdict: 'reject', findings: [{ file: 'a.ts', line: 3 }] };
    for (const answer of [JSON.stringify(review), { returns: review }]) {
      const { outcome, bodies } = await given(wire, { schema: REVIEW, answers: [answer] });
      expect(outcome).toMatchObject({ kind: 'completed', outputs: review });
      expect(bodies).toHaveLength(1);
      const [first = {}] = bodies;
      expect(returning(first)).toMatchObject(REVIEW);
      expect(format(first)).toMatchObject({
        properties: { verdict: { enum: ['approve', 'reject'] } },
      });
      expect(JSON.stringify(first)).toContain('rye_directive_return');
    }
  });

  it('is merged with the outputs of the directive: both must hold', async () => {
    const { outcome, bodies } = await given(wire, {
      schema: REVIEW,
      outputs: OUTPUTS,
      answers: [
        { returns: { verdict: 'maybe', findings: [] } },
        { returns: { verdict: 'approve', findings: [], note: 'Fine.' } },
      ],
    });
    expect(outcome).toMatchObject({
      kind: 'completed',
      outputs: { verdict: 'approve', findings: [], note: 'Fine.' },
    });
    const merged = {
      properties: {
        verdict: { type: 'string', enum: ['approve', 'reject'], description: 'The verdict.' },
        note: { type: 'string', description: 'Anything else.' },
        findings: { type: 'array', items: { required: ['file'] } },
      },
      required: ['verdict', 'findings'],
    };
    expect(returning(bodies[0] ?? {})).toMatchObject(merged);
    expect(JSON.stringify(bodies[1])).toMatch(/verdict: must be one of .*got string .*maybe/);
  });

  it('is carried by the directive itself', async () => {
    const schema = JSON.stringify({ type: 'array', items: { enum: ['a', 'b'] } });
    const outputs = `<outputs><output name="tags" required="true">Tags.<schema>${schema}</schema></output></outputs>`;
    const { outcome, bodies } = await given(wire, {
      outputs,
      answers: ['{"tags": ["c"]}', '{"tags": ["a", "b"]}'],
    });
    expect(outcome).toMatchObject({ kind: 'completed', outputs: { tags: ['a', 'b'] } });
    expect(bodies).toHaveLength(2);
    expect(format(bodies[0] ?? {})).toMatchObject({
      properties: { tags: { type: 'array', items: { enum: ['a', 'b'] }, description: 'Tags.' } },
    });
    expect(JSON.stringify(bodies[1])).toContain('tags.0: must be one of');
  });

  // Requirement: structured-result
  it('is asked for again with what is wrong, and ends the run after three times', async () => {
    const asked = await given(wire, { schema: STRICT, answers: ['There are four.', '{"n": 4}'] });
    expect(asked.outcome).toMatchObject({ kind: 'completed', outputs: { n: 4 } });
    expect(JSON.stringify(asked.bodies[1])).toContain('The problem: ');
    const never = await given(wire, {
      schema: STRICT,
      answers: ['{"n": "a"}', { returns: { n: 'b' } }, '{}', '{"n": "d"}', '{"n": 4}'],
    });
    expect(never.outcome).toMatchObject({ kind: 'failed', error: { code: 'outputs_missing' } });
    expect(never.bodies).toHaveLength(4);
  });
});

describe('a directive without a schema', () => {
  it('makes one request if it has no outputs, or if the answer returns them', async () => {
    const plain = await given('anthropic', { answers: ['Done.'] });
    expect([plain.outcome.kind, plain.bodies.length]).toEqual(['completed', 1]);
    expect(WIRES.anthropic.format(plain.bodies[0] ?? {})).toBeUndefined();
    const outputs = OUTPUTS;
    const returned = await given('anthropic', {
      outputs,
      answers: [{ returns: { verdict: 'x' } }],
    });
    expect([returned.outcome.kind, returned.bodies.length]).toEqual(['completed', 1]);
    const optional = OUTPUTS.replace(' required="true"', '');
    const omitted = await given('anthropic', { outputs: optional, answers: ['Done.'] });
    expect([omitted.outcome.kind, omitted.bodies.length]).toEqual(['completed', 1]);
    const missing = await given('anthropic', {
      outputs,
      answers: ['Done.', { returns: { verdict: 'x' } }],
    });
    expect([missing.outcome.kind, missing.bodies.length]).toEqual(['completed', 2]);
  });
});
