import { existsSync, lstatSync } from 'node:fs';
import { join } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { PRIVATE_FOLDERS } from '../disk/ignore-file.ts';
import { readTextInside, writeInside } from '../disk/inside.ts';
import { signText } from '../trust/signature.ts';
import type { InitOutcome } from './api/rye.ts';
import { ensureKey } from './signing-key.ts';
import type { Workspace } from './workspace.ts';

const IGNORED = PRIVATE_FOLDERS.map((folder) => `.ai/${folder}/`);

const EXAMPLE = `# Example

A directive of your own. Change it, sign it again with \`rye sign directive example\`, and run it with
\`rye run example --input path=src\`.

\`\`\`xml
<directive name="example" version="1.0.0">
  <metadata>
    <description>List a folder and count its entries.</description>
    <category></category>
    <author>you</author>
    <model provider="literal" />
    <limits turns="8" spend="0.10" />
    <permissions>
      <execute><tool>rye/file-system/ls</tool></execute>
    </permissions>
  </metadata>
  <inputs>
    <input name="path" type="string" default=".">Folder, relative to the project.</input>
  </inputs>
  <outputs>
    <output name="entries" type="integer" required="true" from="\${steps.list.data.count}">How many there are.</output>
  </outputs>
  <process>
    <step name="list">
      <description>List the folder.</description>
      <execute item_type="tool" item_id="rye/file-system/ls"><param name="path">{input:path}</param></execute>
    </step>
  </process>
</directive>
\`\`\`

List the folder "{input:path}" and return the number of its entries as the output \`entries\`.
`;

const RESILIENCE = `# Limits of threads in this project. It applies only while it is signed: rye sign config agent/resilience
limits:
  spend: 1.00 # USD
`;

const LIMITS_FILE = '.ai/config/agent/resilience.yaml';
const IGNORE_FILE = '.gitignore';
const FILES = [
  {
    name: '.ai/directives/example.md',
    text: EXAMPLE,
    style: 'html',
    subject: { kind: 'directive', id: 'example' },
  },
  {
    name: LIMITS_FILE,
    text: RESILIENCE,
    style: 'yaml',
    subject: { kind: 'config', id: 'agent/resilience' },
  },
] as const;

/**
 * Makes `.ai/` in the project: an example directive, limits, `.gitignore` lines; and the signing key if there is none. A
 * project that is the user's folder gets the example only.
 */
export async function initProject(
  workspace: Workspace,
  { force = false }: { force?: boolean },
): Promise<InitOutcome> {
  const { projectPath } = workspace.options;
  assertOwnFiles(projectPath);
  const created: string[] = [];
  const kept: string[] = [];
  const key = await ensureKey(workspace);
  // in the user space, limits would apply to all projects, and git may read ~/.gitignore everywhere
  const isProject = workspace.spaces.own === 'project';
  for (const { name, ...file } of FILES) {
    if (name === LIMITS_FILE && !isProject) continue;
    const isShipped = workspace.spaces.isShipped(join(projectPath, name));
    if (existsSync(join(projectPath, name)) && (isShipped || !force)) {
      kept.push(name);
      continue;
    }
    const signed = signText({
      ...file,
      key: workspace.keyring.signer(),
      now: workspace.clock.now(),
    });
    writeInside(projectPath, join(projectPath, name), signed);
    created.push(name);
  }
  if (created.includes(LIMITS_FILE)) {
    const { LOCK_FILE, pinSigned } = await import('./guards.ts');
    const isNew = !existsSync(join(projectPath, LOCK_FILE));
    await pinSigned(workspace, [{ type: 'config', id: 'agent/resilience' }]);
    if (isNew) created.push(LOCK_FILE);
  }
  if (isProject) ((await ignore(projectPath, IGNORED)) ? created : kept).push(IGNORE_FILE);
  return { project: projectPath, created, kept, ...key };
}

/** A cloned folder must not choose what rye changes outside of it. */
function assertOwnFiles(projectPath: string): void {
  const written = [...FILES.map(({ name }) => name), IGNORE_FILE];
  const steps = written.flatMap((name) =>
    name.split('/').map((_part, index, parts) => parts.slice(0, index + 1).join('/')),
  );
  const link = steps.find((step) =>
    lstatSync(join(projectPath, step), { throwIfNoEntry: false })?.isSymbolicLink(),
  );
  if (link === undefined) return;
  throw new RyeError('path_denied', `${link} is refused: it is a symbolic link`, {
    hint: 'Remove the link, or create the folder. rye init does not write through links.',
    details: { path: join(projectPath, link) },
  });
}

/** Keeps a file with a secret out of git. */
export async function ignoreFile(projectPath: string, name: string): Promise<void> {
  await ignore(projectPath, [name]);
}

/** Adds lines to .gitignore; false if they are there already. */
async function ignore(projectPath: string, names: readonly string[]): Promise<boolean> {
  const path = join(projectPath, IGNORE_FILE);
  const text = readTextInside(projectPath, path) ?? '';
  const lines = new Set(text.split(/\r?\n/).map((line) => line.trim().replace(/^\//, '')));
  const missing = names.filter((name) => !lines.has(name));
  if (missing.length === 0) return false;
  const separator = text === '' || text.endsWith('\n') ? '' : '\n';
  writeInside(projectPath, path, `${text}${separator}${missing.join('\n')}\n`);
  return true;
}
