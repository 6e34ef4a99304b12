import { join, sep } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { HOOK_EVENTS, type HookDeclaration, type HookEvent } from '../core/hook.ts';

import { compact, type JsonObject } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import { hookSchema, isHookEvent } from '../hooks/contexts.ts';
import { type HookExplanation as ExplainedHook, explainHooks } from '../hooks/explain.ts';
import { mergeLayers } from '../hooks/sources.ts';
import { withoutSecrets } from '../storage/store-url.ts';
import { resolveDirective } from '../threads/prepare/directive.ts';
import { prepareThread } from '../threads/prepare/prepare.ts';
import type { ConfigValue, HookExplanation } from './api/rye.ts';
import { noticeChanges } from './guards.ts';
import { readConfiguredHooks } from './settings.ts';
import { threadEnv } from './thread-env.ts';
import type { Workspace } from './workspace.ts';

/** The merged table of hooks: of every configured source, and of a directive's chain when one is named. */
export async function listHooks(
  workspace: Workspace,
  directiveId?: string,
): Promise<readonly HookDeclaration[]> {
  await noticeChanges(workspace);
  if (directiveId === undefined)
    return mergeLayers(await readConfiguredHooks(await workspace.config())).hooks;
  const env = await threadEnv(workspace, { allowUnsigned: true });
  const { hooks } = await resolveDirective(env.items, env.config, {
    directiveId,
    inputs: {},
  });
  return hooks;
}

export interface ExplainRequest {
  readonly directiveId: string;
  readonly event?: HookEvent | undefined;
  readonly inputs: JsonObject;
}

/**
 * Explains which hooks would fire for a directive and why the others would not. The context is what is known before a
 * run; a hook whose condition reads what only a run knows (costs, errors) depends on it.
 */
export async function explainDirectiveHooks(
  workspace: Workspace,
  { directiveId, event, inputs }: ExplainRequest,
): Promise<readonly HookExplanation[]> {
  const env = await threadEnv(workspace, { allowUnsigned: true });
  const { plan } = await prepareThread(env, { directiveId, inputs, isDryRun: true });
  const { routingContext } = await resolveDirective(env.items, env.config, {
    directiveId,
    inputs,
  });
  const context: JsonObject = {
    directive: directiveId,
    directive_body: [directiveId, plan.directive.description, plan.body].join('\n'),
    category: plan.directive.category,
    model: plan.model.id,
    limits: { ...plan.limits },
    spend_limit: plan.limits.spend,
    max_turns: plan.limits.turns,
    capabilities_summary: plan.capabilities.join(', '),
    inputs: plan.inputs,
    parent_thread_id: plan.parent_thread_id,
    depth: plan.limits.depth,
    project_path: workspace.options.projectPath,
  };
  const { suppress, capabilities } = plan;
  const events = event === undefined ? HOOK_EVENTS : [event];
  return events.flatMap((one) => {
    const call = { event: one, context: one === 'resolve_extends' ? routingContext : context };
    return explainHooks(plan.hooks, call, { suppress, capabilities }).map((explained) => ({
      hook: explained.hook,
      would_fire: explained.fires === true && explained.decidedBy === undefined,
      depends_on: explained.decidedBy === undefined ? explained.dependsOn : [],
      because: becauseOf(explained),
    }));
  });
}

function becauseOf(explained: ExplainedHook): string {
  const { reason, because, decidedBy, maybeDecidedBy, dependsOn, missing, hook } = explained;
  if (decidedBy !== undefined) return `hook ${decidedBy} decides before it`;
  const unless =
    maybeDecidedBy === undefined ? '' : `, unless hook ${maybeDecidedBy} decides first`;
  switch (reason) {
    case 'depends':
      return `depends on ${dependsOn.join(', ')}, known during a run only${unless}`;
    case 'fires':
      return (
        (hook.condition === undefined ? 'it has no condition' : 'its condition holds') + unless
      );
    case 'denied':
      return `it cannot run: it needs ${missing ?? 'a capability'}`;
    case 'not_matched':
      return because.map(({ text }) => text).join('; ');
    case 'disabled':
    case 'suppressed':
      return reason;
  }
}

/** The context schema of an event, or of all of them. */
export function describeContexts(event?: string): Readonly<Record<string, JsonObject>> {
  if (event !== undefined && !isHookEvent(event)) {
    throw new RyeError('usage', `unknown hook event ${event}`, {
      hint: didYouMean(event, HOOK_EVENTS) ?? `Events are: ${HOOK_EVENTS.join(', ')}.`,
    });
  }
  const events = event === undefined ? HOOK_EVENTS : [event];
  return Object.fromEntries(events.map((one) => [one, hookSchema(one)]));
}

/** Every configuration value below `path` with the place that set it. */
export async function listConfig(
  workspace: Workspace,
  path?: string,
): Promise<readonly ConfigValue[]> {
  const config = await workspace.config();
  const values: ConfigValue[] = [];
  const shipped = join(workspace.systemPath, '.ai', 'config');
  for (const name of config.names()) {
    if (name.startsWith('keys/')) continue;
    const file = name.replaceAll('/', '.');
    const short = file.startsWith('agent.') ? file.slice('agent.'.length) : file;
    let loaded: Awaited<ReturnType<typeof config.load>>;
    try {
      loaded = await config.load(name);
    } catch (error) {
      // a mistake in one file must not hide the settings of the others
      if (!(error instanceof RyeError) || path === short) throw error;
      workspace.notice(`${error.message} [${error.code}]`);
      continue;
    }
    const { value, origins } = loaded;
    for (const [leaf, origin] of origins) {
      const full = `${short}.${leaf}`;
      if (path !== undefined && full !== path && !full.startsWith(`${path}.`)) continue;
      const found = at(value, leaf);
      const isSecret = full === 'store.url' && typeof found === 'string';
      const shown = isSecret ? withoutSecrets(found) : found;
      const isDefault = origin.startsWith(`${shipped}${sep}`) || undefined;
      values.push(compact({ path: full, value: shown, origin, is_default: isDefault }));
    }
  }
  return values;
}

function at(value: JsonObject, path: string): ConfigValue['value'] {
  let node: unknown = value;
  for (const key of path.split('.')) {
    if (typeof node !== 'object' || node === null) return null;
    node = (node as Record<string, unknown>)[key];
  }
  return (node ?? null) as ConfigValue['value'];
}
