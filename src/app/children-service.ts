import { RyeError } from '../core/errors.ts';
import type { ThreadResult } from '../core/thread.ts';
import type { Foundation } from './foundation.ts';
import type {
  ChildrenService,
  ExecuteDirectiveRequest,
  ExecuteToolRequest,
  KilledThread,
  LaunchedThread,
  LaunchOptions,
  StatsKey,
  ThreadStats,
  ThreadTreeNode,
  WaitOptions,
  WaitReport,
} from './rye.ts';
import { statsOf } from './thread-stats.ts';
import { threadTree } from './thread-tree.ts';

/** The children service; what runs threads is loaded when it is first needed. */
export class LazyChildren implements ChildrenService {
  readonly #base: Foundation;

  constructor(base: Foundation) {
    this.#base = base;
  }

  async launch(
    request: ExecuteDirectiveRequest,
    options: LaunchOptions = {},
  ): Promise<LaunchedThread> {
    const { launchDirective } = await import('./children.ts');
    return await launchDirective(this.#base, request, options);
  }

  async launchTool(request: ExecuteToolRequest): Promise<LaunchedThread> {
    const { launchToolRun } = await import('./children.ts');
    return await launchToolRun(this.#base, request);
  }

  async runLaunched(threadId: string, options: { signal: AbortSignal }): Promise<ThreadResult> {
    const { runLaunchedThread } = await import('./children.ts');
    return await runLaunchedThread(this.#base, threadId, options);
  }

  async wait(threadIds: readonly string[], options: WaitOptions = {}): Promise<WaitReport> {
    const { waitForIds } = await import('./children.ts');
    return await waitForIds(this.#base, threadIds, options);
  }

  async cancel(
    threadId: string,
    { tree = false, reason = 'asked by a person' }: { tree?: boolean; reason?: string } = {},
  ): Promise<readonly string[]> {
    await this.#assertKnown(threadId);
    const { cancelById } = await import('./children.ts');
    return await cancelById(this.#base, { threadId, tree, reason });
  }

  async kill(
    threadId: string,
    { tree = false, reason = 'killed by a person' }: { tree?: boolean; reason?: string } = {},
  ): Promise<readonly KilledThread[]> {
    await this.#assertKnown(threadId);
    const { killById } = await import('./children.ts');
    return await killById(this.#base, { threadId, tree, reason });
  }

  async tree(threadId?: string): Promise<readonly ThreadTreeNode[]> {
    if (threadId !== undefined) await this.#assertKnown(threadId);
    return threadTree(await this.#base.store.registry.list({}), threadId);
  }

  async stats(by: StatsKey = 'directive'): Promise<readonly ThreadStats[]> {
    return statsOf(await this.#base.store.registry.list({}), by);
  }

  async #assertKnown(threadId: string): Promise<void> {
    if ((await this.#base.store.registry.get(threadId)) !== undefined) return;
    throw new RyeError('thread_not_found', `there is no thread ${threadId}`, {
      hint: 'Run: rye threads list',
    });
  }
}
