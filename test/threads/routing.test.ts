import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { parseHooks } from '../../src/kernel/hooks/declaration.ts';
import type { ItemSource } from '../../src/kernel/threads/ports.ts';
import { resolveDirective } from '../../src/kernel/threads/prepare/directive.ts';
import type { ThreadConfig } from '../../src/kernel/threads/thread-config.ts';

const directive = (id: string, inner: string, attributes = '') =>
  `\`\`\`xml\n<directive name="${id}" version="1.0.0"${attributes}>\n<metadata><description>d</description><category></category><author>x</author></metadata>\n${inner}\n</directive>\n\`\`\`\n`;

const INPUTS =
  '<inputs><input name="env" type="string" default="prod">e</input><input name="level" type="integer">l</input><input name="live" type="boolean">l</input><input name="key" type="string" secret="true">k</input></inputs>';
const FILES: Readonly<Record<string, string>> = {
  strict: directive('strict', ''),
  base: directive('base', INPUTS),
  own: directive('own', INPUTS),
  heir: directive('heir', '', ' extends="base"'),
  wrong: directive(
    'wrong',
    '<process><if condition="${inputs.lvl} == 3"><step name="a"><execute item_type="tool" item_id="a/b"/></step></if></process>',
    ' extends="base"',
  ),
};

const items: ItemSource = {
  load: (type, id) =>
    Promise.resolve({
      type,
      id,
      space: 'project',
      path: `${id}.md`,
      text: FILES[id] ?? '',
      sha256: id,
      integrity: 'verified',
    }),
};

async function route(id: string, condition: object, inputs: JsonObject) {
  const hook = { id: 'r', event: 'resolve_extends', condition, action: { set_extends: 'strict' } };
  const config = {
    hooks: { project: parseHooks([{ value: hook, origin: 'hooks.yaml:1' }], 3) },
  } as unknown as ThreadConfig;
  return await resolveDirective(items, config, { directiveId: id, inputs });
}

describe('routing', () => {
  it.each<[object, JsonObject]>([
    [{ path: 'inputs.env', op: 'eq', value: 'prod' }, {}],
    [{ path: 'inputs.level', op: 'gte', value: 3 }, { level: '3' }],
    [{ path: 'inputs.live', op: 'eq', value: true }, { live: 'yes' }],
  ])('sees %j in the inputs %j with their defaults and types', async (condition, inputs) => {
    for (const id of ['own', 'heir']) {
      const resolved = await route(id, condition, inputs);
      expect([id, resolved.routedBy]).toEqual([id, 'r']);
    }
  });

  it('does not see secret inputs', async () => {
    const condition = { path: 'inputs.key', op: 'exists' };
    const resolved = await route('own', condition, { key: 's3cr3t' });
    expect(resolved.routedBy).toBeUndefined();
    expect(JSON.stringify(resolved.routingContext)).not.toContain('s3cr3t');
  });

  it('is followed by a check of the inputs that a process inherits', async () => {
    const never = { path: 'inputs.env', op: 'eq', value: 'none' };
    await expect(route('wrong', never, {})).rejects.toThrow(/the input "lvl"/);
  });
});
