import type { HookDeclaration, HookEvent } from '../core/hook.ts';
import type { JsonObject } from '../core/json.ts';
import { LazyChildren } from './children-service.ts';
import { LazyDeliveries } from './deliveries-service.ts';
import { LazyExports } from './exports-service.ts';
import { Foundation } from './foundation.ts';
import { Items } from './items-service.ts';
import { Keys } from './keys-service.ts';
import { LazyRules } from './lazy-rules.ts';
import { startRun } from './library-run.ts';
import { LazyRecovery } from './recovery-service.ts';
import type { RunHandle, RunOutcome, RunRequest } from './run-types.ts';
import type {
  ConfigValue,
  DoctorLine,
  HookExplanation,
  InitOutcome,
  LockService,
  OpenRyeOptions,
  Rye,
} from './rye.ts';
import { Trees } from './session-tree-service.ts';
import { Threads } from './threads-service.ts';
import { withUserEnv } from './user-env.ts';
import { checkedPlaces } from './user-space.ts';

/**
 * Opens rye on a project and a user space. Cheap: files, databases and the modules behind each service are opened
 * when they are first needed, so that listing threads does not pay for parsing directives.
 */
export function openRye(given: OpenRyeOptions): Rye {
  const options = checkedPlaces(given);
  return new OpenedRye(new Foundation({ ...options, env: withUserEnv(options) }));
}

class OpenedRye implements Rye {
  readonly projectPath: string;
  readonly userSpacePath: string;
  readonly items: Items;
  readonly keys: Keys;
  readonly lock: LockService;
  readonly threads: Threads;
  readonly rules: LazyRules;
  readonly children: LazyChildren;
  readonly recovery: LazyRecovery;
  readonly deliveries: LazyDeliveries;
  readonly trees: Trees;
  readonly exports: LazyExports;
  readonly #base: Foundation;

  constructor(base: Foundation) {
    this.#base = base;
    this.projectPath = base.options.projectPath;
    this.userSpacePath = base.options.userSpacePath;
    this.items = new Items(base, async () => {
      const { Tools } = await import('./tools.ts');
      return new Tools(base, { allowUnsigned: false }).builtin();
    });
    this.keys = new Keys(base);
    this.lock = {
      status: async () => (await import('./guards.ts')).reportGuards(base),
      accept: async () => (await import('./guards.ts')).acceptGuards(base),
    };
    this.threads = new Threads(base);
    this.rules = new LazyRules(base);
    this.children = new LazyChildren(base);
    this.recovery = new LazyRecovery(base);
    this.deliveries = new LazyDeliveries(base);
    this.trees = new Trees(base);
    this.exports = new LazyExports(base);
  }

  async run(request: RunRequest): Promise<RunOutcome> {
    return await this.start(request).outcome;
  }

  start(request: RunRequest): RunHandle {
    return startRun(this.#base, this.deliveries, request);
  }

  async init(options: { force?: boolean } = {}): Promise<InitOutcome> {
    const { initProject } = await import('./init.ts');
    return await initProject(this.#base, options);
  }

  async hooks(directiveId?: string): Promise<readonly HookDeclaration[]> {
    const { listHooks } = await import('./explain.ts');
    return await listHooks(this.#base, directiveId);
  }

  async explainHooks(
    directiveId: string,
    event?: HookEvent,
    inputs: JsonObject = {},
  ): Promise<readonly HookExplanation[]> {
    const { explainDirectiveHooks } = await import('./explain.ts');
    return await explainDirectiveHooks(this.#base, { directiveId, event, inputs });
  }

  async hookSchemas(event?: string): Promise<Readonly<Record<string, JsonObject>>> {
    const { describeContexts } = await import('./explain.ts');
    return describeContexts(event);
  }

  async config(path?: string): Promise<readonly ConfigValue[]> {
    const { listConfig } = await import('./explain.ts');
    return await listConfig(this.#base, path);
  }

  async models(): Promise<readonly JsonObject[]> {
    const { modelRows, Models, shippedKinds } = await import('./models.ts');
    const { options, clock } = this.#base;
    const models = new Models({
      config: async () => await this.#base.config(),
      env: options.env,
      clock,
      kinds: shippedKinds(),
    });
    return modelRows(await models.choices());
  }

  async doctor(): Promise<readonly DoctorLine[]> {
    const { examine } = await import('./doctor.ts');
    return await examine(this.#base);
  }

  close(): void {
    this.#base.close();
  }
}
