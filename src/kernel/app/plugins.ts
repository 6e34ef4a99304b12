import { join } from 'node:path';
import { assertConfig, type CheckedSchema } from '../core/check.ts';
import { messageOf, RyeError, systemCodeOf, toRyeError } from '../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import { compact, isRecord } from '../core/json.ts';
import { PLUGIN_MEMBERS } from '../core/plugin.ts';
import { makeFolders } from '../disk/folders.ts';
import { placeInside } from '../disk/inside.ts';
import { readRegular } from '../disk/regular-file.ts';
import { readConfigFile } from '../items/config-fs.ts';
import type { FoundFile } from '../items/spaces-fs.ts';
import { verifyFile } from '../items/verified-fs.ts';
import { wordCustomEntries } from '../log/account.ts';
import file from '../schemas/plugins.json' with { type: 'json' };
import type { PluginEntry, PluginsFile } from '../schemas/plugins.ts';
import { type Database, openSqlite } from '../storage/sqlite/engine.ts';
import { sha256Hex } from '../trust/keys.ts';
import { faultError } from '../trust/policy.ts';
import type { Plugin, PluginFactory, PluginHost, PluginRows } from './api/rye.ts';
import { composePresets, type Preset } from './presets.ts';
import type { Workspace } from './workspace.ts';

type Observer = (event: LogEvent | UnknownEvent) => void | Promise<void>;

const NAME = 'plugins';
const PLUGIN_NAME = /^[a-z0-9][a-z0-9-]{0,63}$/;
const LISTS: ReadonlySet<string> = new Set(['commands', 'gates', 'subscribers', 'tables']);
/** Milliseconds that a statement waits for another process. */
const WAIT_MS = 5000;

const schema: CheckedSchema = file;

/** Imports a module in the program that `bin/rye.js` evaluates, whose own `import()` cannot. */
declare const importModule: ((address: string) => Promise<unknown>) | undefined;

const loaded = new WeakMap<Workspace, Promise<readonly Plugin[]>>();

/**
 * Loads the plug-ins of the user and of the project, once for each opened rye. Throws for a file that no trusted key
 * signed, a module that differs from the signed one, and a member that is not granted: a gate that is ignored would
 * be no gate.
 */
export async function loadPlugins(workspace: Workspace): Promise<readonly Plugin[]> {
  const known = loaded.get(workspace);
  if (known !== undefined) return await known;
  const loading = loadAll(workspace);
  loaded.set(workspace, loading);
  try {
    return await loading;
  } catch (error) {
    // the file may be corrected while this rye is open
    loaded.delete(workspace);
    throw error;
  }
}

async function loadAll(workspace: Workspace): Promise<readonly Plugin[]> {
  const { projectPath, userSpacePath } = workspace.options;
  const plugins: Plugin[] = [];
  for (const space of ['user', 'project'] as const) {
    const found = workspace.spaces.find('config', NAME, { space });
    if (found === undefined || found.space !== space) continue;
    const root = space === 'user' ? userSpacePath : projectPath;
    for (const entry of await entriesOf(found, workspace)) {
      const plugin = await load(workspace, root, entry);
      if (plugins.some(({ name }) => name === plugin.name)) {
        throw invalid(entry, `another plug-in is called ${plugin.name}`);
      }
      plugins.push(plugin);
    }
  }
  return plugins;
}

async function entriesOf(
  found: FoundFile,
  { verification }: Workspace,
): Promise<readonly PluginEntry[]> {
  const verdict = verifyFile(found, verification);
  if (!verdict.ok) {
    const { code, message, hint, details } = faultError(found, verdict);
    const location = { path: found.path };
    throw new RyeError(code, `plug-ins are refused: ${message}`, { hint, location, details });
  }
  return readPluginsFile((await readConfigFile(found)).value, found.path);
}

/** Reads the content of plugins.yaml. Throws `config_invalid` for the first mistake. */
export function readPluginsFile(value: unknown, path: string): readonly PluginEntry[] {
  assertConfig(schema, value, NAME, { path });
  // the assertion above has checked its shape
  return (value as PluginsFile).plugins ?? [];
}

/** Returns why entries of a file could not be loaded, before it is signed. None of the modules runs. */
export async function entryFaults(
  found: FoundFile,
  { options: { projectPath, userSpacePath } }: Workspace,
): Promise<readonly RyeError[]> {
  const root = found.space === 'user' ? userSpacePath : projectPath;
  const { value } = await readConfigFile(found);
  return readPluginsFile(value, found.path).flatMap((entry) => {
    try {
      bytesOf(root, entry);
      return [];
    } catch (error) {
      return [toRyeError(error)];
    }
  });
}

async function load(workspace: Workspace, root: string, entry: PluginEntry): Promise<Plugin> {
  const bytes = bytesOf(root, entry);
  let made: Plugin | undefined;
  const rows = openedLater(() => {
    if (made === undefined) throw invalid(entry, 'it uses rows before its function has returned');
    if (made.tables === undefined) throw invalid(entry, 'it uses rows without "tables"');
    try {
      return openRows(workspace, made);
    } catch (error) {
      throw invalid(entry, `its tables cannot be made: ${messageOf(error)}`);
    }
  });
  const { projectPath } = workspace.options;
  const host = { projectPath, rows, notice: workspace.notice };
  made = checkedPlugin(entry, await resultOf(entry, await factoryOf(entry, bytes), host));
  wordCustomEntries(made.events ?? {});
  return made;
}

async function resultOf(
  entry: PluginEntry,
  make: PluginFactory,
  host: PluginHost,
): Promise<unknown> {
  try {
    return await make(host);
  } catch (error) {
    throw error instanceof RyeError ? error : invalid(entry, messageOf(error));
  }
}

/** Reads the file that an entry vouches for. Throws `plugin_modified` for another one. */
function bytesOf(root: string, entry: PluginEntry): Uint8Array {
  const bytes = readPlugin(root, entry);
  const sha256 = sha256Hex(bytes);
  if (sha256 === entry.sha256) return bytes;
  throw new RyeError(
    'plugin_modified',
    `the plug-in ${entry.file} is not the one of plugins.yaml`,
    {
      hint: `Review it. If it is what you want, write "sha256: ${sha256}" there, and sign: rye sign config plugins`,
      details: { file: entry.file, sha256 },
    },
  );
}

function readPlugin(root: string, entry: PluginEntry): Uint8Array {
  try {
    return readRegular(placeInside(root, join(root, entry.file)));
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') throw invalid(entry, `${root} has no such file`);
    throw error;
  }
}

/** Makes the module of the bytes that were hashed, so that nothing else can run. */
async function factoryOf(entry: PluginEntry, bytes: Uint8Array): Promise<PluginFactory> {
  const address = `data:text/javascript;base64,${Buffer.from(bytes).toString('base64')}`;
  try {
    const module: unknown =
      typeof importModule === 'function' ? await importModule(address) : await import(address);
    if (isRecord(module) && typeof module['plugin'] === 'function')
      return module['plugin'] as unknown as PluginFactory;
  } catch (error) {
    throw invalid(entry, messageOf(error).replaceAll(address, entry.file));
  }
  throw invalid(entry, 'it exports no function "plugin"');
}

/** Returns the plug-in as its members are now, so that nothing of it changes after the check. */
function checkedPlugin(entry: PluginEntry, plugin: unknown): Plugin {
  if (!isRecord(plugin)) throw invalid(entry, 'its function "plugin" returns no object');
  const { name } = plugin;
  if (typeof name !== 'string' || !PLUGIN_NAME.test(name)) {
    throw invalid(entry, 'its name is not small letters, digits and hyphens');
  }
  const known: readonly string[] = PLUGIN_MEMBERS;
  const unknown = Object.keys(plugin).find((one) => one !== 'name' && !known.includes(one));
  if (unknown !== undefined) {
    throw invalid(entry, `it has an unknown member ${JSON.stringify(unknown)}`);
  }
  const members = PLUGIN_MEMBERS.flatMap((member): [string, unknown][] => {
    const value: unknown = plugin[member];
    if (value === undefined) return [];
    if (!entry.may.includes(member)) {
      throw invalid(entry, `it brings ${member}, which "may" in plugins.yaml does not grant`);
    }
    if (LISTS.has(member) ? Array.isArray(value) : isRecord(value)) return [[member, value]];
    throw invalid(entry, `its ${member} are not ${LISTS.has(member) ? 'a list' : 'an object'}`);
  });
  const checked = { name, ...Object.fromEntries(members) } as Plugin;
  if (checked.tables?.some((sql: unknown) => typeof sql !== 'string') === true) {
    throw invalid(entry, 'its tables are not SQL statements');
  }
  if (checked.commands?.every(isCommand) === false) {
    throw invalid(entry, 'one of its commands has no name, or no function "run"');
  }
  for (const type of Object.keys(checked.events ?? {})) {
    if (type.startsWith(`${name}/`)) continue;
    throw invalid(entry, `its custom type ${JSON.stringify(type)} does not begin with ${name}/`);
  }
  return checked;
}

function isCommand(command: unknown): boolean {
  return (
    isRecord(command) && typeof command['name'] === 'string' && typeof command['run'] === 'function'
  );
}

/** Combines what plug-ins bring to threads. */
export function presetOf(plugins: readonly Plugin[]): Preset {
  return composePresets(
    ...plugins.map(({ tools, gates, subscribers }) =>
      compact({
        tools,
        handlers: compact({ tool_gate: gates, event: subscribers as readonly Observer[] }),
      }),
    ),
  );
}

function invalid({ file: path }: PluginEntry, problem: string): RyeError {
  return new RyeError('plugin_invalid', `the plug-in ${path} cannot be used: ${problem}`, {
    hint: 'docs/plugins.md shows a whole one. To go without it, remove it from plugins.yaml and sign that.',
  });
}

/** Rows for a factory: the name and the tables of its plug-in are known only once it has returned. */
function openedLater(open: () => PluginRows): PluginRows {
  let opened: PluginRows | undefined;
  const rows = (): PluginRows => (opened ??= open());
  return {
    all: (sql, ...parameters) => rows().all(sql, ...parameters),
    run: (sql, ...parameters) => rows().run(sql, ...parameters),
  };
}

function openRows(workspace: Workspace, { name, tables = [] }: Plugin): PluginRows {
  const folder = join(workspace.options.projectPath, '.ai', 'state', 'plugins');
  makeFolders(folder);
  const database = openSqlite(join(folder, `${name}.db`), { readonly: false, timeout: WAIT_MS });
  workspace.onClose(() => database.close());
  database.pragma('journal_mode = WAL');
  makeTables(database, tables);
  return {
    all: (sql, ...parameters) => database.prepare(sql).all(...parameters),
    run: (sql, ...parameters) => database.prepare(sql).run(...parameters).changes,
  };
}

/** Runs the statements that have not run yet. Their number is the version of the database. */
function makeTables(database: Database, tables: readonly string[]): void {
  const migrate = database.transaction((statements: readonly string[]) => {
    const version = Number(database.pragma('user_version', { simple: true }));
    for (const sql of statements.slice(version)) database.exec(sql);
    if (statements.length > version) database.pragma(`user_version = ${statements.length}`);
  });
  migrate.immediate(tables);
}
