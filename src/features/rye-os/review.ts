import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { OpenRyeOptions } from '../../kernel/app/api/rye.ts';
import { PersonalItems } from '../../kernel/app/personal-items.ts';
import { readThreadConfig } from '../../kernel/app/settings.ts';
import { Threads } from '../../kernel/app/threads.ts';
import { Workspace } from '../../kernel/app/workspace.ts';
import type { Risk } from '../../kernel/core/capability.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import { aliasesOf, type SignableType, THREAD_DIRECTIVE } from '../../kernel/core/ids.ts';
import { isJsonObject, type JsonObject } from '../../kernel/core/json.ts';
import { parseDirective } from '../../kernel/items/directive.ts';
import { parseYamlMapping } from '../../kernel/items/metadata.ts';
import {
  mcpServerEntry,
  mcpServerName,
  plainText,
  providerAdvice,
  providerFile,
} from '../../kernel/items/tool-advice.ts';
import { blankSignatureLine } from '../../kernel/trust/signature-line.ts';
import { type Change, readTree, type TreeFile, unifiedDiff } from './files.ts';
import { type Fault, fixed } from './fixes.ts';

/** The step that an item needs before it can be used. */
export type RyeOsVerdict = 'runs' | 'acknowledge' | 'change' | 'refused';

export interface ReviewedItem {
  readonly type: SignableType;
  readonly id: string;
  /** Relative to the reviewed folder. */
  readonly path: string;
  /** `runs`: as it is, once signed. `change`: after the change that the patch or the hint describes. */
  readonly verdict: RyeOsVerdict;
  /** True if the patch makes the change. */
  readonly patched: boolean;
  /** Risk to acknowledge, or `--allow-unpriced`. */
  readonly needs: readonly string[];
  readonly code: string | null;
  readonly reason: string;
  readonly hint: string | null;
}

export interface RyeOsReview {
  readonly items: readonly ReviewedItem[];
  /** Counts by type and verdict. */
  readonly summary: Readonly<Record<string, Readonly<Record<RyeOsVerdict, number>>>>;
  /** A unified diff of all mechanical changes, for `git apply` in the reviewed folder. */
  readonly patch: string;
}

interface Finding extends Fault {
  readonly isOk: boolean;
  /** True for a directive that can be signed and can't be planned. */
  readonly signs?: boolean;
  readonly needs: readonly string[];
}

const FINE: Finding = { isOk: true, needs: [], code: '', message: '', hint: undefined };
const MAX_ROUNDS = 6;

/** An item's file with the text that it needs here. */
export interface ExaminedFile extends TreeFile {
  /** The text with the mechanical changes; `text` if there are none. */
  readonly after: string;
  /** True if the file can be signed. */
  readonly signs: boolean;
  /** The fault of a file that can't be signed or planned. */
  readonly fault: Fault | undefined;
  /** True for a manifest that becomes configuration. */
  readonly isMoved: boolean;
}

/** A review, with the reviewed texts. */
export interface Examined {
  readonly review: RyeOsReview;
  readonly files: readonly ExaminedFile[];
  /** Configuration that replaces manifests; paths are relative to the tree. */
  readonly added: readonly Change[];
}

/** Parts of this machine that the review uses. */
type Machine = Pick<OpenRyeOptions, 'env' | 'features'>;

/**
 * Reviews a tree of Rye OS: signs a private copy with a key made for it, plans every directive, and repeats after each round of mechanical
 * changes. The tree itself is only read; nothing runs, and no model or server is asked.
 */
export async function examineRyeOs(dir: string, machine: Machine): Promise<Examined> {
  const files = readTree(dir);
  const first = await judge(files, machine);
  const moved = movedFiles(files);
  let texts = new Map(files.map(({ path, text }) => [path, text]));
  let findings = first;
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const next = new Map(
      files.map((file) => {
        const finding = findings.get(file.path);
        const text = texts.get(file.path) ?? file.text;
        return [file.path, finding?.isOk === false ? fixed(file, text, finding) : text];
      }),
    );
    if (files.every(({ path }) => next.get(path) === texts.get(path))) break;
    texts = next;
    findings = await judge(
      files.map((file) => ({ ...file, text: texts.get(file.path) ?? file.text })),
      machine,
    );
  }
  const items = files.map((file) =>
    reviewed(file, {
      before: first.get(file.path) ?? FINE,
      after: findings.get(file.path) ?? FINE,
      isMoved: moved.deleted.has(file.path),
    }),
  );
  const changes: Change[] = [
    ...files.flatMap(({ path, text }): Change[] => {
      if (moved.deleted.has(path)) return [{ path, before: text, after: undefined }];
      const after = findings.get(path)?.isOk === true ? texts.get(path) : text;
      return after === text ? [] : [{ path, before: text, after }];
    }),
    ...moved.added,
  ];
  const examined = files.map((file): ExaminedFile => {
    const { isOk, signs = isOk, ...fault } = findings.get(file.path) ?? FINE;
    return {
      ...file,
      after: signs ? (texts.get(file.path) ?? file.text) : file.text,
      signs,
      fault: isOk ? undefined : fault,
      isMoved: moved.deleted.has(file.path),
    };
  });
  const review = { items, summary: summarize(items), patch: unifiedDiff(changes) };
  return { review, files: examined, added: moved.added };
}

const REFUSED: ReadonlySet<string> = new Set(['tool_unsupported', 'tool_id_reserved']);

function reviewed(
  { type, id, path }: TreeFile,
  {
    before,
    after,
    isMoved,
  }: { readonly before: Finding; readonly after: Finding; readonly isMoved: boolean },
): ReviewedItem {
  const item = { type, id, path };
  if (before.isOk) {
    const verdict = before.needs.length === 0 ? 'runs' : 'acknowledge';
    return {
      ...item,
      verdict,
      patched: false,
      needs: before.needs,
      code: null,
      reason: '',
      hint: null,
    };
  }
  const isFixed = after.isOk || isMoved;
  const fault = isFixed ? before : after;
  return {
    ...item,
    verdict: isFixed ? 'change' : REFUSED.has(fault.code) ? 'refused' : 'change',
    patched: isFixed,
    needs: after.needs,
    code: fault.code,
    reason: fault.message,
    hint: fault.hint ?? null,
  };
}

function summarize(items: readonly ReviewedItem[]): RyeOsReview['summary'] {
  const summary: Record<string, Record<RyeOsVerdict, number>> = {};
  for (const { type, verdict } of items) {
    summary[type] ??= { runs: 0, acknowledge: 0, change: 0, refused: 0 };
    const row = summary[type];
    row[verdict] += 1;
  }
  return summary;
}

/** Servers and providers are configured here, so their manifests become configuration and go. */
function movedFiles(files: readonly TreeFile[]): {
  readonly deleted: ReadonlySet<string>;
  readonly added: readonly Change[];
} {
  const deleted = new Set<string>();
  const added = new Map<string, string>();
  const paths = new Set(files.map(({ path }) => path));
  for (const file of files.filter(({ type }) => type === 'tool')) {
    const target = configurationOf(file);
    if (target === undefined || paths.has(target.path)) continue;
    deleted.add(file.path);
    const before = added.get(target.path) ?? target.head;
    if (target.text !== '') added.set(target.path, `${before}${target.text}\n`);
  }
  return {
    deleted,
    added: [...added].map(([path, after]) => ({ path, before: undefined, after })),
  };
}

/** Returns the configuration file that replaces a manifest, and the text to add; undefined if the manifest stays. */
function configurationOf(
  file: TreeFile,
): { readonly path: string; readonly head: string; readonly text: string } | undefined {
  const value = manifestOf(file);
  const type = plainText(value?.['tool_type']);
  if (value === undefined) return undefined;
  const mcp = { path: `${file.root}/config/mcp.yaml`, head: 'servers:\n' };
  if (type === 'mcp') return { ...mcp, text: '' };
  if (type === 'mcp_server') {
    const text = mcpServerEntry(mcpServerName(file.id), value);
    return text === undefined ? undefined : { ...mcp, text };
  }
  if (type !== 'http' || providerAdvice(value) === undefined) return undefined;
  const name = plainText(value['tool_id'], file.id).split('/').at(-1) ?? file.id;
  return {
    path: `${file.root}/config/agent/providers/${name}.yaml`,
    head: '',
    text: providerFile(value),
  };
}

function manifestOf({ path, text, extension }: TreeFile): JsonObject | undefined {
  if (!['.yaml', '.yml', '.json'].includes(extension)) return undefined;
  try {
    const source = { path, text: blankSignatureLine(text, 'yaml'), line: 1, column: 1 };
    return parseYamlMapping(source, 'tool_malformed').value;
  } catch {
    return undefined;
  }
}

/** Signs and plans copies of the files in a private project, which is removed. */
async function judge(
  files: readonly TreeFile[],
  machine: Machine,
): Promise<ReadonlyMap<string, Finding>> {
  const folder = await mkdtemp(join(tmpdir(), 'rye-import-'));
  try {
    return await judgeIn(folder, files, machine);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Copies files into a private project; those that are not needed there get their finding. */
async function copyAll(
  projectPath: string,
  files: readonly TreeFile[],
): Promise<{ readonly copies: Map<string, TreeFile>; readonly findings: Map<string, Finding> }> {
  const copies = new Map<string, TreeFile>();
  const findings = new Map<string, Finding>();
  for (const file of files) {
    const copy = join(
      projectPath,
      '.ai',
      FOLDERS[file.type] ?? file.type,
      `${file.id}${file.extension}`,
    );
    const own = file.type === 'tool' ? ownToolFor(file.id) : undefined;
    if (own !== undefined) {
      findings.set(file.path, { ...FINE, isOk: false, ...own });
      continue;
    }
    // of two files with one id the first counts, as it would in a search through bundles
    const twin = [...copies.values()].find(
      (other) => other.type === file.type && other.id === file.id,
    );
    if (twin !== undefined) {
      findings.set(file.path, {
        ...FINE,
        isOk: false,
        code: 'duplicate_item',
        message: `${twin.path} has the same id`,
        hint: 'Keep one of them.',
      });
      continue;
    }
    copies.set(copy, file);
    await mkdir(dirname(copy), { recursive: true });
    await writeFile(copy, file.text);
  }
  return { copies, findings };
}

async function judgeIn(
  folder: string,
  files: readonly TreeFile[],
  machine: Machine,
): Promise<ReadonlyMap<string, Finding>> {
  const projectPath = join(folder, 'project');
  const { copies, findings } = await copyAll(projectPath, files);
  const open = (): Workspace =>
    new Workspace({
      projectPath,
      userSpacePath: join(folder, 'home'),
      features: machine.features ?? [],
      // no call is made: a key only decides which provider a plan names
      env: { PATH: machine.env['PATH'], HOME: join(folder, 'home'), ANTHROPIC_API_KEY: 'review' },
    });
  await mkdir(join(folder, 'home'), { recursive: true });
  await open().keyring.init();
  const pathOf = (copy: string): string => copies.get(copy)?.path ?? copy;
  for (const type of ['config', 'knowledge', 'tool', 'directive'] as const) {
    if (![...copies.values()].some((file) => file.type === type)) continue;
    for (const { path, problems, status } of await new PersonalItems(open()).sign(type, '**')) {
      const fault = problems.find(({ severity }) => severity === 'error');
      findings.set(
        pathOf(path),
        status === 'failed' && fault ? { ...FINE, ...fault, isOk: false, hint: fault.hint } : FINE,
      );
    }
    if (type === 'config') await judgeConfig(open, copies, findings);
  }
  const threads = new Threads(open());
  for (const [copy, file] of copies) {
    if (file.type !== 'directive' || findings.get(file.path)?.isOk !== true) continue;
    findings.set(file.path, { ...(await planned(threads, file, copy)), signs: true });
  }
  return findings;
}

/** Returns why a copy of a tool of Rye OS is not needed, and would only hide rye's. */
function ownToolFor(id: string): Fault | undefined {
  const aliases = aliasesOf('tool');
  const own =
    id === THREAD_DIRECTIVE ? 'rye/execute' : Object.hasOwn(aliases, id) ? aliases[id] : undefined;
  if (own === undefined) return undefined;
  return {
    code: 'tool_id_reserved',
    message: `rye has ${own} for this and understands the old id`,
    hint: 'Delete the copy.',
  };
}

export const FOLDERS: Readonly<Partial<Record<SignableType, string>>> = {
  directive: 'directives',
  tool: 'tools',
  knowledge: 'knowledge',
  config: 'config',
};

/** A file that cannot be read blocks every run, so it is judged alone and then taken out. */
async function judgeConfig(
  open: () => Workspace,
  copies: ReadonlyMap<string, TreeFile>,
  findings: Map<string, Finding>,
): Promise<void> {
  for (const [copy, file] of copies) {
    if (file.type !== 'config') continue;
    try {
      const config = await open().config();
      await config.load(file.id);
      await readThreadConfig(config);
    } catch (error) {
      findings.set(file.path, { ...FINE, isOk: false, ...faultOf(error) });
      await rm(copy, { force: true });
    }
  }
}

export function faultOf(error: unknown): Fault {
  if (!(error instanceof RyeError)) throw error;
  return { code: error.code, message: error.message, hint: error.hint };
}

const ATTEMPTS: readonly {
  readonly needs: readonly string[];
  readonly acknowledge: readonly Risk[];
  readonly allowUnpriced: boolean;
}[] = [
  { needs: [], acknowledge: [], allowUnpriced: false },
  { needs: ['elevated'], acknowledge: ['elevated'], allowUnpriced: false },
  { needs: ['unrestricted'], acknowledge: ['unrestricted'], allowUnpriced: false },
  { needs: ['--allow-unpriced'], acknowledge: [], allowUnpriced: true },
  {
    needs: ['unrestricted', '--allow-unpriced'],
    acknowledge: ['unrestricted'],
    allowUnpriced: true,
  },
];
/** Error codes that an acknowledgement or an option resolves. */
const ASKS = new Set(['acknowledge_required', 'risk_blocked', 'model_not_found', 'model_unpriced']);

async function planned(threads: Threads, { id, text }: TreeFile, path: string): Promise<Finding> {
  let fault: Fault | undefined;
  for (const { needs, ...options } of ATTEMPTS) {
    try {
      await threads.plan({ directiveId: id, inputs: sampleInputs(text, path), ...options });
      return { ...FINE, needs };
    } catch (error) {
      const found = faultOf(error);
      fault ??= found;
      if (!ASKS.has(found.code)) return { ...FINE, isOk: false, ...found };
      if (found.code === 'model_not_found') fault = found;
    }
  }
  return { ...FINE, ...fault, isOk: false };
}

const SAMPLES: Readonly<
  Record<string, string | number | boolean | readonly string[] | JsonObject>
> = {
  integer: 1,
  number: 1,
  boolean: true,
  array: [],
  object: {},
};

/** A value of its type for every required input. */
export function sampleInputs(text: string, path: string): JsonObject {
  const { inputs } = parseDirective(text, path);
  const values = inputs
    .filter(({ required }) => required)
    .map((input): [string, unknown] => [
      input.name,
      input.values[0] ?? SAMPLES[input.type] ?? 'sample',
    ]);
  const sample = Object.fromEntries(values) as JsonObject;
  return isJsonObject(sample) ? sample : {};
}
