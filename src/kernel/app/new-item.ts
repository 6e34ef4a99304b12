import { join } from 'node:path';
import { parseDocument } from 'yaml';
import { RyeError } from '../core/errors.ts';
import { assertItemId, type ItemType } from '../core/ids.ts';
import { createInside, writeInside } from '../disk/inside.ts';
import { type FoundFile, itemFolder, type Spaces } from '../items/spaces-fs.ts';
import type { NewItem, NewType } from './api/items.ts';
import { hookIds, readHooksFile } from './hooks-file.ts';
import { problemsOf } from './validation.ts';

interface NewItemRequest {
  readonly type: NewType;
  readonly id: string;
  readonly projectPath: string;
  /** Name of the author in the file. */
  readonly author: string;
}

/**
 * Writes an unsigned item of the project from a template. Throws `already_exists`, or the first problem that
 * `rye validate` would report of it, such as an id that no directive can have.
 */
export async function writeNewItem(request: NewItemRequest, spaces: Spaces): Promise<NewItem> {
  const { type, id, projectPath } = request;
  if (type === 'hook') return newHook(request);
  assertItemId(id, type);
  const taken = spaces.find(type, id, { space: spaces.own });
  if (taken !== undefined) throw exists(type, id, taken.path);
  const { extension, text } = TEMPLATES[type](request);
  const folder = join(projectPath, '.ai', itemFolder(type));
  const path = type === 'skill' ? join(folder, id, 'SKILL.md') : join(folder, `${id}${extension}`);
  const file = { type, id, path, extension, text, space: spaces.own } as const;
  const found: FoundFile = { ...file, bytes: Buffer.from(text), shadows: [] };
  const problem = (await problemsOf(found, spaces, [])).find(
    ({ severity }) => severity === 'error',
  );
  if (problem !== undefined) {
    throw new RyeError(
      'invalid_item_id',
      `${id} cannot be the id of a ${type}: ${problem.message}`,
      {
        hint: 'Use lower-case letters, digits and hyphens, such as reports/weekly.',
      },
    );
  }
  if (!createInside(projectPath, path, text)) throw exists(type, id, path);
  return { type, id, path };
}

function exists(type: NewType, id: string, path: string): RyeError {
  return new RyeError('already_exists', `the project has a ${type} ${id} already`, {
    location: { path },
    hint: `To change it: rye edit ${type} ${id}`,
  });
}

const HOOK_ID = /^[A-Za-z][A-Za-z0-9_-]{0,99}$/;

async function newHook({ id, projectPath }: NewItemRequest): Promise<NewItem> {
  if (!HOOK_ID.test(id)) {
    throw new RyeError('invalid_item_id', `${JSON.stringify(id)} is not the id of a hook`, {
      hint: 'Use letters, digits, _ and -, such as house_rules.',
    });
  }
  const { path, text } = readHooksFile(projectPath);
  const entry = hookEntry(id);
  if (text === undefined) {
    if (createInside(projectPath, path, `hooks:\n${entry}`)) return { type: 'hook', id, path };
    throw exists('hook', id, path);
  }
  if (hookIds(text).includes(id)) throw exists('hook', id, path);
  const document = parseDocument(text);
  if (document.errors.length > 0) {
    throw new RyeError('config_invalid', 'the hooks file cannot be parsed', {
      location: { path },
      hint: 'Correct it first: rye validate config agent/hooks',
    });
  }
  const addition = parseDocument(entry.replace(/^ {2}/gm, '')).toJS() as readonly unknown[];
  if (document.get('hooks') === null || document.get('hooks') === undefined)
    document.set('hooks', document.createNode([]));
  document.addIn(['hooks'], document.createNode(addition[0]));
  writeInside(projectPath, path, String(document));
  return { type: 'hook', id, path };
}

function hookEntry(id: string): string {
  return [
    `  - id: ${id}`,
    '    event: thread_started',
    '    position: before',
    '    action: { inject: "Write what the model should know at the start of each thread." }',
    '',
  ].join('\n');
}

type Template = (request: NewItemRequest) => { readonly extension: string; readonly text: string };

const TEMPLATES: Readonly<Record<ItemType, Template>> = {
  directive: ({ author }) => ({
    extension: '.md',
    text: `---
description: Describe the directive in one sentence.
author: ${JSON.stringify(author)}
tools: [rye/file-system/read]
turns: 10
spend: 0.25
inputs:
  topic: {type: string, required: true, description: The subject of the work.}
outputs:
  summary: {type: string, required: true, description: The findings.}
---

Tell the model here what to do about {input:topic}, and what to return as the output \`summary\`.
`,
  }),
  tool: ({ id }) => ({
    extension: '.js',
    text: `// Parameters come as JSON on stdin, the result goes as JSON to stdout.
const __version__ = '1.0.0';
const __tool_description__ = 'Describe ${nameOf(id)} in one sentence.';
const __category__ = '${categoryOf(id)}';
const __traits__ = { reads_only: true, idempotent: true, network: false, timeout_seconds: 30 };
const CONFIG_SCHEMA = {
  type: 'object',
  properties: { text: { type: 'string', description: 'The text to work on.' } },
  required: ['text'],
  additionalProperties: false,
};

let input = '';
process.stdin.setEncoding('utf8');
process.stdin.on('data', (chunk) => {
  input += chunk;
});
process.stdin.on('end', () => {
  const { text } = JSON.parse(input);
  process.stdout.write(\`\${JSON.stringify({ length: text.length })}\\n\`);
});
`,
  }),
  knowledge: ({ id }) => ({
    extension: '.md',
    text: `---
name: ${nameOf(id)}
title: ${titleOf(id)}
category: "${categoryOf(id)}"
entry_type: reference
version: "1.0.0"
tags: []
---

# ${titleOf(id)}

Write here what directives should know.
`,
  }),
  rule: ({ id }) => ({
    extension: '.md',
    text: `---
description: ${titleOf(id)}
condition:
  - 'FIXME'
scope: 'tool:write(*), tool:edit(*)'
interrupt: never
---
Tell the model here what to write instead of the text that the condition finds.
`,
  }),
  skill: ({ id }) => ({
    extension: '.md',
    text: `---
name: ${nameOf(id)}
description: Describes the skill, and when the model should use it.
---

# ${titleOf(id)}

Write the instructions here. Put scripts and longer texts into files beside this one.
`,
  }),
};

function nameOf(id: string): string {
  return id.slice(id.lastIndexOf('/') + 1);
}

function categoryOf(id: string): string {
  return id.slice(0, Math.max(0, id.lastIndexOf('/')));
}

function titleOf(id: string): string {
  const words = nameOf(id).replaceAll(/[_-]+/g, ' ').trim();
  return `${words.slice(0, 1).toUpperCase()}${words.slice(1)}`;
}
