import { join } from 'node:path';
import { featureMissing, messageOf } from '../core/errors.ts';
import { makeKeyDirectory } from '../trust/key-store-fs.ts';
import type { ApprovalsService } from './api/approvals.ts';
import type { ItemsService, KeysService, LockService } from './api/items.ts';
import type { OpenRyeOptions, Rye } from './api/rye.ts';
import type {
  ChildrenService,
  DeliveriesService,
  RecoveryService,
  ThreadsService,
} from './api/threads.ts';
import type { ExportsService } from './api/trees.ts';
import {
  addedPreset,
  type FeatureServices,
  featuresOf,
  pluginsOf,
  threadParts,
} from './feature.ts';
import { lazy } from './lazy.ts';
import { startRun } from './library-run.ts';
import { assertOpenOptions } from './options.ts';
import { newPassphrase } from './passphrase.ts';
import type { Preset } from './presets.ts';
import { libraryTools } from './presets.ts';
import type { RunHandle, RunRequest } from './run-types.ts';
import { keyOfRun } from './signing-key.ts';
import { checkedPlaces, withUserEnv } from './user-space.ts';
import { Workspace } from './workspace.ts';

/**
 * Opens rye on a project and a user space. Cheap: files, databases and the modules of each service are opened
 * when they are first needed, so that listing threads does not pay for parsing directives.
 */
export function openRye(given: OpenRyeOptions): Rye {
  assertOpenOptions(given);
  const options = checkedPlaces(given);
  const recordKey = options.unsignedRecords === true ? keyOfRun() : undefined;
  const workspace = new Workspace({ ...options, env: withUserEnv(options) }, { recordKey });
  const deliveries = deliveriesOf(workspace);
  const start = <O>(request: object): RunHandle<O> =>
    // the types of inputs and outputs are for callers
    startRun(workspace, deliveries, request as RunRequest);
  const warmUp = async (): Promise<void> =>
    await workspace.warmUp(async () => await (await import('./warm-up.ts')).beginWarmUp(workspace));
  if (options.eager === true) void warmUp();
  const rye: Rye = {
    projectPath: options.projectPath,
    userSpacePath: options.userSpacePath,
    items: itemsOf(workspace),
    keys: keysOf(workspace),
    lock: lockOf(workspace),
    threads: threadsOf(workspace),
    children: childrenOf(workspace),
    recovery: recoveryOf(workspace),
    deliveries,
    exports: exportsOf(workspace),
    start,
    run: async <O>(request: object) => await start<O>(request).outcome,
    defineDirective: async (declaration) => {
      const [{ defineDirective }, { loadDefined }] = await Promise.all([
        import('./program/define-directive.ts'),
        import('./program/directives.ts'),
      ]);
      const directive = defineDirective(declaration);
      loadDefined(directive);
      workspace.define(directive);
      return directive;
    },
    warmUp,
    addHandlers: (handlers) => workspace.added.add(handlers),
    ...featureServices(workspace, () => rye),
    ...inspectionOf(workspace),
    close: (how) => workspace.close(how),
  };
  return rye;
}

function itemsOf(workspace: Workspace): ItemsService {
  const builtinTools = async () => {
    const { ToolCatalog } = await import('./tools.ts');
    return new ToolCatalog(workspace, await threadParts(workspace), {
      allowUnsigned: false,
      own: libraryTools(await listedPlugins(workspace)),
    }).builtin();
  };
  return lazy<ItemsService>(async () => {
    const { PersonalItems } = await import('./personal-items.ts');
    return new PersonalItems(workspace, builtinTools);
  }, {});
}

/** Returns the tools and handlers of plug-ins, for lists and checks. Runs refuse a faulty one; here it is a notice. */
async function listedPlugins(workspace: Workspace): Promise<Preset> {
  try {
    return await addedPreset(workspace);
  } catch (error) {
    workspace.notice(`plug-ins are not listed: ${messageOf(error)}`);
    return {};
  }
}

function keysOf(workspace: Workspace): KeysService {
  const { keyring } = workspace;
  /** Trust is for people: a thread that could move it could decide about itself. */
  const asPerson = async <T>(act: () => Promise<T>): Promise<T> => {
    const { assertOutsideThreads } = await import('./ancestry.ts');
    await assertOutsideThreads(workspace.store, workspace.options.env, 'change keys');
    return await changingKeys(workspace, act);
  };
  return {
    init: async (options = {}) => await keyring.init(options),
    list: async () => keyring.list(),
    export: async () => keyring.export(),
    inspect: async (text, options = {}) => keyring.inspect(text, options),
    trust: async (text, options = {}) =>
      await asPerson(async () => await keyring.trust(text, options)),
    untrust: async (keyId) => await asPerson(async () => await keyring.untrust(keyId)),
    revoke: async (keyId, options = {}) =>
      await asPerson(async () => await keyring.revoke(keyId, options)),
    importRevocation: async (text) =>
      await asPerson(async () => await keyring.importRevocation(text)),
    rotate: async () => await asPerson(async () => await keyring.rotate()),
    protect: async ({ off = false } = {}) =>
      await asPerson(
        async () => await keyring.protect(off ? undefined : newPassphrase(workspace.options.env)),
      ),
    publish: async () => await keyring.publish(),
  };
}

/** Reads and writes keys alone: of two commands that trust a key in two projects, both count. */
async function changingKeys<T>(
  { clock, options: { userSpacePath } }: Workspace,
  act: () => Promise<T>,
): Promise<T> {
  const { exclusively } = await import('./exclusive.ts');
  makeKeyDirectory(join(userSpacePath, '.ai', 'state'));
  const folder = join(userSpacePath, '.ai', 'state', 'keys');
  return await exclusively({ folder, clock }, act);
}

function lockOf(workspace: Workspace): LockService {
  return {
    status: async () => (await import('./guards.ts')).reportGuards(workspace),
    accept: async () => {
      const { assertOutsideThreads } = await import('./ancestry.ts');
      await assertOutsideThreads(workspace.store, workspace.options.env, 'accept files');
      return await (await import('./guards.ts')).acceptGuards(workspace);
    },
  };
}

function threadsOf(workspace: Workspace): ThreadsService {
  return lazy<ThreadsService>(async () => new (await import('./threads.ts')).Threads(workspace), {
    logs: 'stream',
    unverified: 'stream',
  });
}

function childrenOf(workspace: Workspace): ChildrenService {
  const totals = lazy<Pick<ChildrenService, 'tree' | 'stats'>>(
    async () =>
      new (await import('./thread-list.ts')).ThreadTotals(
        workspace.store,
        workspace.options.projectPath,
      ),
    {},
  );
  return lazy<ChildrenService>(
    async () => (await import('./children.ts')).threadChildren(workspace),
    {
      tree: async (...args) => await totals.tree(...args),
      stats: async (...args) => await totals.stats(...args),
    },
  );
}

function recoveryOf(workspace: Workspace): RecoveryService {
  return lazy<RecoveryService>(
    async () => new (await import('./recovery.ts')).Recovery(workspace),
    {},
  );
}

function deliveriesOf(workspace: Workspace): DeliveriesService {
  return lazy<DeliveriesService>(
    async () => (await import('./deliveries.ts')).deliveriesOf(workspace),
    { list: async (threadId) => await workspace.store.deliveries.list(threadId) },
  );
}

function exportsOf(workspace: Workspace): ExportsService {
  return {
    export: async (threadId, options) =>
      await (await import('./exports.ts')).exportThread(workspace, threadId, options),
  };
}

/** The services of features. A call of one that is not there throws `feature_missing`. */
function featureServices(workspace: Workspace, rye: () => Rye): FeatureServices {
  const given: Partial<FeatureServices> = Object.assign(
    {},
    ...featuresOf(workspace)
      .toReversed()
      .map(({ services }) => services?.(workspace, rye)),
  );
  const { chat }: Pick<FeatureServices, 'chat'> = missing('chat');
  const mcp: Pick<FeatureServices, 'mcpServers' | 'addMcpServer'> = missing('mcp');
  return {
    approvals: missing('approvals'),
    chat,
    schedules: missing('schedules'),
    rules: missing('rules'),
    fleet: missing('fleet'),
    skills: missing('skills'),
    trees: missing('sessions'),
    mcpServers: mcp.mcpServers,
    addMcpServer: mcp.addMcpServer,
    ...given,
  };
}

/** Any service: each of its methods rejects with the name of the feature. */
function missing(feature: string): never {
  const load = async (): Promise<never> => {
    throw featureMissing(feature);
  };
  return lazy<Pick<ApprovalsService, 'watch'>>(load, { watch: 'stream' }) as never;
}

/** The reports on hooks, configuration, models and the installation, and `init`. */
function inspectionOf(
  workspace: Workspace,
): Pick<
  Rye,
  | 'init'
  | 'hooks'
  | 'explainHooks'
  | 'hookSchemas'
  | 'config'
  | 'models'
  | 'prices'
  | 'useModel'
  | 'doctor'
  | 'plugins'
> {
  return {
    init: async (options = {}) => await (await import('./init.ts')).initProject(workspace, options),
    hooks: async (directiveId) =>
      await (await import('./explain.ts')).listHooks(workspace, directiveId),
    explainHooks: async (directiveId, event, inputs = {}) => {
      const { explainDirectiveHooks } = await import('./explain.ts');
      return await explainDirectiveHooks(workspace, { directiveId, event, inputs });
    },
    hookSchemas: async (event) => (await import('./explain.ts')).describeContexts(event),
    config: async (path) => await (await import('./explain.ts')).listConfig(workspace, path),
    models: async () => {
      const { listModels } = await import('./model-choice.ts');
      return await listModels(workspace);
    },
    prices: async (options) => {
      const { modelsOf } = await import('./models.ts');
      return await modelsOf(workspace).prices(options);
    },
    useModel: async (name, options = {}) => {
      const { useModel } = await import('./model-choice.ts');
      return await useModel(workspace, name, options);
    },
    doctor: async () => await (await import('./doctor.ts')).examine(workspace),
    plugins: async () => await pluginsOf(workspace),
  };
}
