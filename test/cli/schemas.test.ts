import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryWorkspace, type Workspace } from '../helpers/workspace.ts';

const SCHEMAS = path.resolve(import.meta.dirname, '../../docs/schemas');

/** The commands whose documents each schema describes; `{id}` is a finished thread. */
const DOCUMENTS: Readonly<Record<string, readonly string[]>> = {
  'config-show': ['config show', 'config get resilience.limits.turns'],
  doctor: ['doctor'],
  failure: ['run nope', 'frobnicate', 'keys init'],
  fetch: ['fetch directive hello'],
  'hooks-explain': ['hooks explain hello'],
  'hooks-list': ['hooks list'],
  'hooks-schema': ['hooks schema', 'hooks schema tool_gate'],
  init: ['init'],
  'keys-export': ['keys export'],
  'keys-list': ['keys list'],
  list: ['list directive', 'list tool', 'list knowledge'],
  'models-list': ['models list'],
  'rules-list': ['rules list'],
  search: ['search knowledge hello', 'search all greet'],
  sign: ['sign directive example'],
  'thread-result': ['run hello', 'run hello --limit turns=1'],
  'threads-export': ['threads export {id}', 'threads export {id} --out thread.jsonl'],
  'threads-list': ['threads list'],
  'threads-show': ['threads show {id}'],
  'threads-stats': ['threads stats'],
  'threads-tree': ['threads tree'],
  'threads-wait': ['threads wait {id}'],
  'tool-result': ['execute tool rye/core/greet --param who=Ada'],
  validate: ['validate'],
  verify: ['verify directive example'],
  'verify-thread': ['verify thread {id}'],
};

let here: Workspace & { readonly remove: () => void };
let id = '';

beforeAll(async () => {
  here = await temporaryWorkspace({});
  id = String((await here.json(['run', 'hello']))['thread_id']);
});
afterAll(() => here.remove());

describe('each JSON document is what its published schema says', () => {
  const schemas = new Ajv2020({ allErrors: true, allowUnionTypes: true });

  it.each(Object.entries(DOCUMENTS))('%s', async (name, commands) => {
    const schema = JSON.parse(readFileSync(path.join(SCHEMAS, `${name}.json`), 'utf8')) as object;
    const validate = schemas.compile(schema);
    for (const command of commands) {
      const document = await here.json(command.replace('{id}', id).split(' '));
      validate(document);
      expect(validate.errors ?? [], command).toEqual([]);
    }
  });

  it('and every schema is tried', () => {
    const names = readdirSync(SCHEMAS).map((file) => file.replace(/\.json$/, ''));
    expect(names.toSorted()).toEqual(Object.keys(DOCUMENTS).toSorted());
  });
});
