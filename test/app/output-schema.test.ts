import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, expectTypeOf, it } from 'vitest';
import { z } from 'zod';
import { defineDirective } from '../../src/kernel/app/program/define-directive.ts';
import { mockModel } from '../../testing/index.ts';
import { libraryLab } from './library-lab.ts';

const FINDING = z.object({ file: z.string(), line: z.int().optional() });

const review = defineDirective({
  id: 'team/review',
  description: 'Reviews.',
  instructions: 'Review.',
  outputs: {
    verdict: { required: true, schema: { enum: ['approve', 'reject'] } },
    findings: { required: true, schema: z.array(FINDING) },
    score: { type: 'number' },
  },
});

const SCHEMA = {
  type: 'object',
  properties: { tags: { type: 'array', items: { type: 'string' } } },
  required: ['tags'],
} as const;

it('outputs have the types of their schemas, of JSON Schema and of zod', async () => {
  const lab = await libraryLab();
  const returns = { verdict: 'reject', findings: [{ file: 'a.ts', line: 3 }] };
  const model = mockModel([{ calls: [{ tool: 'directive_return', input: returns }] }]);
  const rye = lab.open({ providers: { mock: model.kind } });
  const outcome = await rye.run({ directive: review, provider: 'mock' });
  if (outcome.kind !== 'completed') throw new Error(JSON.stringify(outcome));
  const { verdict, findings, score } = outcome.outputs;
  expectTypeOf(verdict).toEqualTypeOf<'approve' | 'reject'>();
  expectTypeOf(findings).toEqualTypeOf<{ file: string; line?: number | undefined }[]>();
  expectTypeOf(score).toEqualTypeOf<number | undefined>();
  expect([verdict, findings[0]?.line, score]).toEqual(['reject', 3, undefined]);
  expect(model.requests[0]?.output_schema).toMatchObject({
    properties: {
      findings: { type: 'array', items: { properties: { line: { type: 'integer' } } } },
    },
  });
});

it('the schema of a run types its outputs', async () => {
  const lab = await libraryLab();
  await lab.directive('work');
  const model = mockModel([{ text: '{"tags": ["a"]}' }, { text: '{"at": "b"}' }]);
  const rye = lab.open({ providers: { mock: model.kind } });
  const request = { directiveId: 'team/work', provider: 'mock' } as const;
  const tagged = await rye.run({ ...request, outputSchema: SCHEMA });
  if (tagged.kind !== 'completed') throw new Error(JSON.stringify(tagged));
  expectTypeOf(tagged.outputs.tags).toEqualTypeOf<readonly string[]>();
  expect(tagged.outputs.tags).toEqual(['a']);
  const placed = await rye.run({ ...request, outputSchema: z.object({ at: z.string() }) });
  if (placed.kind !== 'completed') throw new Error(JSON.stringify(placed));
  expectTypeOf(placed.outputs).toEqualTypeOf<{ at: string }>();
  expect(placed.outputs.at).toBe('b');
  const wrong = await rye.run({ ...request, outputSchema: z.date() });
  expect(wrong).toMatchObject({ kind: 'failed', error: { code: 'usage' } });
});

it('a schema in a knowledge entry must be signed, and belongs to the sources of the plan', async () => {
  const lab = await libraryLab([]);
  const file = path.join(lab.project, '.ai/knowledge/schemas/tags.md');
  mkdirSync(path.dirname(file), { recursive: true });
  const front =
    '---\nname: tags\ntitle: Tags\nversion: "1.0.0"\nentry_type: schema\ncategory: schemas\n---\n';
  const schema = JSON.stringify({ type: 'array', items: { enum: ['a', 'b'] } });
  writeFileSync(file, `${front}\nThe tags.\n\n\`\`\`json\n${schema}\n\`\`\`\n`);
  const outputs =
    '<outputs><output name="tags" required="true"><schema id="schemas/tags"/></output></outputs>';
  await lab.directive('work', [], { outputs });
  const rye = lab.open();
  const unsigned = await rye.run({ directiveId: 'team/work' });
  expect(unsigned).toMatchObject({ kind: 'failed', error: { code: 'unsigned' } });
  await rye.items.sign('knowledge', 'schemas/tags');
  const plan = await rye.threads.plan({ directiveId: 'team/work' });
  expect(plan.outputs).toMatchObject([
    { name: 'tags', type: 'array', schema: { items: { enum: ['a', 'b'] } } },
  ]);
  expect(plan.context_sources.map(({ id }) => id)).toContain('schemas/tags');
  writeFileSync(file, `${front}\nNo schema here.\n`);
  await rye.items.sign('knowledge', 'schemas/tags');
  expect(await rye.run({ directiveId: 'team/work' })).toMatchObject({
    kind: 'failed',
    error: { code: 'directive_malformed' },
  });
});

it('a schema in an entry that is another one by its own name is refused, also where nothing has to be signed', async () => {
  const lab = await libraryLab([]);
  const file = path.join(lab.project, '.ai/knowledge/schemas/tags.md');
  mkdirSync(path.dirname(file), { recursive: true });
  const text = (name: string): string =>
    `---\nname: ${name}\ntitle: Tags\nversion: "1.0.0"\nentry_type: schema\ncategory: schemas\n---\n\n\`\`\`json\n{"type": "array"}\n\`\`\`\n`;
  const outputs =
    '<outputs><output name="tags" required="true"><schema id="schemas/tags"/></output></outputs>';
  writeFileSync(file, text('tags'));
  await lab.directive('work', [], { outputs });
  const rye = lab.open();
  const request = { directiveId: 'team/work', allowUnsigned: true } as const;
  expect((await rye.threads.plan(request)).outputs).toMatchObject([{ type: 'array' }]);
  writeFileSync(file, text('labels'));
  await expect(rye.threads.plan(request)).rejects.toMatchObject({ code: 'item_moved' });
});
