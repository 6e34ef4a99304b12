import { featureMissing, messageOf, type RyeError } from '../core/errors.ts';
import type { EventDraft, EventPayloads } from '../core/events.ts';
import type { ItemType } from '../core/ids.ts';
import type { Message } from '../core/message.ts';
import type { PlannedTool, ThreadPlan } from '../core/plan.ts';
import type { SearchAnswer } from '../core/search.ts';
import type { ExportFormat } from '../core/thread.ts';
import type { Exporter } from '../export/source.ts';
import type { FoundFile, Spaces } from '../items/spaces-fs.ts';
import type { ProviderTraits } from '../providers/provider.ts';
import type { ApprovalEnv } from '../threads/approval-port.ts';
import type {
  HostSkills,
  OpenTools,
  RuleSource,
  ThreadEnv,
  UnavailableGrant,
} from '../threads/ports.ts';
import type { ApprovalAttention } from '../threads/run/approvals.ts';
import type { ThreadConfig } from '../threads/thread-config.ts';
import type { Worktrees } from '../threads/worktrees.ts';
import type { ScriptOptions } from '../tools/script.ts';
import type { Tool } from '../tools/tool.ts';
import type { ApprovalAttendant } from './api/approvals.ts';
import type { Problem } from './api/items.ts';
import type { McpServerOptions } from './api/mcp.ts';
import type { DoctorLine, Plugin, Rye } from './api/rye.ts';
import type { ImportedSession, ImportOptions } from './api/trees.ts';
import type { OfferedTools } from './granted-tools.ts';
import { composePresets, type Preset } from './presets.ts';
import type { SearchRequest } from './search-request.ts';
import type { SessionTools } from './session-tools.ts';
import type { StoringFeature } from './store-part.ts';
import type { ProgramSkill, Workspace } from './workspace.ts';

/**
 * A part of rye that can be removed. Every member but the name is optional; the kernel calls nothing else of it. Members
 * load their code when they are called: naming a feature costs a start nothing. {@link StoringFeature} adds `name` and
 * `store`, `faces/cli/feature.ts` the commands.
 */
export interface Feature extends StoringFeature {
  /** Services of an opened rye, such as `rye.schedules`. Called when it opens; the first feature with a service counts. */
  readonly services?: (workspace: Workspace, rye: () => Rye) => Partial<FeatureServices>;
  /** The parts of threads. They are loaded with the first thread that is prepared, run or read. */
  readonly thread?: () => Promise<ThreadParts>;
  /** Tools, gates and subscribers, as a program has them. They are loaded with the first thread that runs. */
  readonly preset?: (workspace: Workspace) => Promise<Pick<Preset, 'handlers' | 'tools'>>;
  /** Formats of `rye threads export`. Where two features provide one, the first counts. */
  readonly formats?: Readonly<Partial<Record<ExportFormat, () => Promise<Exporter>>>>;
  /** Makes threads of sessions of other programs. The first feature with an importer counts. */
  readonly importer?: () => Promise<ImportSession>;
  /** Lines of `rye doctor`. An error that it throws is a line too. */
  readonly checks?: (workspace: Workspace) => Promise<readonly DoctorLine[]>;
  /** Checks of its configuration files, by their ID, as a run would read them. They throw the first mistake. */
  readonly files?: Readonly<Record<string, (file: FoundFile, spaces: Spaces) => Promise<void>>>;
  /** Mistakes in items that depend on more than the form of the file. */
  readonly problems?: Readonly<
    Partial<Record<ItemType, (file: FoundFile) => Promise<readonly Problem[]>>>
  >;
}

/** The services of rye that features provide. */
export type FeatureServices = Pick<
  Rye,
  | 'approvals'
  | 'chat'
  | 'schedules'
  | 'rules'
  | 'fleet'
  | 'skills'
  | 'trees'
  | 'mcpServers'
  | 'addMcpServer'
>;

export type ImportSession = (env: ThreadEnv, options: ImportOptions) => Promise<ImportedSession>;

/** The parts of threads that features provide. Where two provide one, the first counts, but for tools. */
export interface ThreadParts {
  readonly approvals?: (workspace: Workspace) => ApprovalsPart;
  readonly rules?: (
    workspace: Workspace,
    options: { readonly allowUnsigned: boolean },
  ) => RuleSource;
  readonly worktrees?: (options: Pick<Workspace['options'], 'projectPath' | 'env'>) => Worktrees;
  readonly servers?: (
    workspace: Workspace,
    options?: { readonly mcpServers?: Readonly<Record<string, McpServerOptions>> },
  ) => ToolServers;
  /** Connects all servers for the threads to come. */
  readonly warmServers?: (workspace: Workspace) => Promise<void>;
  readonly skills?: (
    workspace: Workspace,
    options: { readonly allowUnsigned: boolean; readonly skills?: readonly ProgramSkill[] },
  ) => SkillSource;
  readonly search?: (workspace: Workspace) => SearchPart;
  /** Tools that a thread may be granted, beside the kernel's tools. */
  readonly tools?: (workspace: Workspace, reader: Reader) => readonly Tool[];
}

/** The rights of the thread that a tool reads for. */
export interface Reader {
  readonly capabilities: readonly string[];
  /** True for an item in a file that no tool of the thread reads. */
  readonly denies: (path: string) => boolean;
}

export interface ApprovalsPart {
  readonly env: ApprovalEnv['approvals'];
  /** Connects an attendant with the requests of a run in this process. */
  attend(attendant: ApprovalAttendant): ApprovalAttention;
}

export interface SearchPart {
  items(request: SearchRequest): Promise<SearchAnswer>;
  /** Brings the index up to date. */
  refresh(): Promise<void>;
  /** Indexes one export of a thread. */
  index(path: string): Promise<void>;
}

/** Servers that offer tools. */
export interface ToolServers {
  /** Returns the tools of the servers that the capabilities reach; connects none unless it may. */
  granted(capabilities: readonly string[], mayConnect: boolean): Promise<OfferedTools>;
  /** Returns why a server that a file of the project names is not used. */
  ignored(server: string): RyeError | undefined;
  /** Returns the names of the configured servers; undefined if they cannot be read. */
  names(): Promise<readonly string[] | undefined>;
  /** Finds a tool by its ID. Throws `item_not_found`. */
  find(id: string): Promise<Tool>;
  /** Returns the servers that work in this folder, relative to the project; absent: in the project. */
  at(workPath: string | undefined): ServersInPlace;
}

export interface ServersInPlace {
  /** Makes a planned tool callable. */
  planned(tool: PlannedTool): Tool;
  /** Holds the servers for a thread. */
  attach(session: ServerSession): Pick<OpenTools, 'refresh' | 'close'>;
}

export interface ServerSession {
  readonly offered: SessionTools;
  readonly plan: ThreadPlan;
  readonly traits: ProviderTraits;
  readonly config: Pick<ThreadConfig, 'risks' | 'toolPreloadTokens'>;
  readonly record: ((drafts: readonly EventDraft[]) => void) | undefined;
}

export interface SkillSource {
  /** Returns the skills that the capabilities let a thread fetch. */
  granted(capabilities: readonly string[]): Promise<GrantedSkills>;
}

export interface GrantedSkills {
  /** One sentence for each skipped or faulty skill. */
  readonly warnings: readonly string[];
  /** The capabilities that name a skill that can't be used. */
  readonly unavailable: readonly UnavailableGrant[];
  readonly skills: readonly ListedSkill[];
  /** Returns the list of the skills with these IDs for the system text; empty without skills. */
  readonly catalog: (ids: ReadonlySet<string>) => string;
  open(options: SkillSessionOptions): SkillSession;
}

/** A skill as models and handlers are told it. */
export interface ListedSkill {
  readonly id: string;
  readonly description: string;
}

/** The skills of one running thread. */
export interface SkillSession {
  readonly host: HostSkills;
  readonly tools: readonly Tool[];
  /** Why an active skill keeps a tool from being called. */
  readonly refusal: (toolId: string) => string | undefined;
  /** Takes up the skills that an earlier part of the conversation loaded. */
  readonly restore: (messages: readonly Message[]) => void;
}

export interface SkillSessionOptions {
  readonly scripts: ScriptOptions;
  /** True for a file, by its real path, that tools must not read. */
  readonly denies: (real: string) => boolean;
  /** The tools that the thread may call, now. */
  readonly planned: () => readonly PlannedTool[];
  /** Ids of deferred tools that can be called; the session adds to it. */
  readonly unlocked: Set<string>;
  /** The skills that handlers list; absent: all. The thread has no other ones. */
  readonly listed?: ReadonlySet<string> | undefined;
  /** Called with each skill that becomes active. */
  readonly onActivated?: ((activation: EventPayloads['skill_activated']) => void) | undefined;
}

export const NO_SKILLS: GrantedSkills = {
  warnings: [],
  unavailable: [],
  skills: [],
  catalog: () => '',
  open: () => ({
    host: { activate: () => [], deactivate: () => [], end: () => [] },
    tools: [],
    refusal: () => undefined,
    restore: () => undefined,
  }),
};

/** The features that a rye was opened with. */
export function featuresOf({ options }: Workspace): readonly Feature[] {
  // options carry the features without the types of the kernel, which know the options
  return options.features ?? [];
}

const loaded = new WeakMap<Workspace, Promise<ThreadParts>>();

/** Loads the parts of threads once for each opened rye. */
export async function threadParts(workspace: Workspace): Promise<ThreadParts> {
  const known = loaded.get(workspace);
  if (known !== undefined) return await known;
  const loading = loadParts(featuresOf(workspace));
  loaded.set(workspace, loading);
  return await loading;
}

async function loadParts(features: readonly Feature[]): Promise<ThreadParts> {
  const all = await Promise.all(features.map(async ({ thread }) => (await thread?.()) ?? {}));
  const tools = all.flatMap((parts) => parts.tools ?? []);
  return {
    ...Object.assign({}, ...all.toReversed()),
    tools: (workspace, reader) => tools.flatMap((make) => make(workspace, reader)),
  };
}

/** The plug-ins of an opened rye. Where no file names one, nothing is loaded. */
export async function pluginsOf(workspace: Workspace): Promise<readonly Plugin[]> {
  if (workspace.spaces.find('config', 'plugins') === undefined) return [];
  const { loadPlugins } = await import('./plugins.ts');
  return await loadPlugins(workspace);
}

/** Has the plug-ins' words about custom entries ready for people who read a log. What is wrong with one is a notice. */
export async function learnWords(workspace: Workspace): Promise<void> {
  try {
    await pluginsOf(workspace);
  } catch (error) {
    workspace.notice(`entries of plug-ins are shown as they are: ${messageOf(error)}`);
  }
}

/** Returns the tools and handlers that features and plug-ins bring to threads. */
export async function addedPreset(workspace: Workspace): Promise<Preset> {
  const presets = await Promise.all(
    featuresOf(workspace).flatMap(({ preset }) => preset?.(workspace) ?? []),
  );
  const plugins = await pluginsOf(workspace);
  if (plugins.length > 0) presets.push((await import('./plugins.ts')).presetOf(plugins));
  return composePresets(...presets);
}

/** The search of a workspace. Throws `feature_missing`. */
export async function searchOf(workspace: Workspace): Promise<SearchPart> {
  const { search } = await threadParts(workspace);
  if (search === undefined) throw featureMissing('search');
  return search(workspace);
}

/** The git worktrees of a folder. Throws `feature_missing`. */
export async function worktreesOf(workspace: Workspace, projectPath: string): Promise<Worktrees> {
  const { worktrees } = await threadParts(workspace);
  if (worktrees === undefined) throw featureMissing('worktrees');
  return worktrees({ projectPath, env: workspace.options.env });
}
