import { compact, type JsonObject } from '../../core/json.ts';
import { threadLabel } from '../../core/label.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import type { Preparing } from '../ports.ts';
import type { ThreadDocument } from '../thread-document.ts';
import { planPlace } from '../worktrees.ts';
import type { PrepareRequest } from './request.ts';

/** Returns the settings of the request, the place that it asks for and its label, without the values of `secrets`. */
export async function requestedPlace(
  env: Preparing,
  request: PrepareRequest,
  {
    parent,
    secrets,
  }: {
    readonly parent: ThreadDocument | undefined;
    readonly secrets: Readonly<Record<string, string>>;
  },
): Promise<Pick<ThreadPlan, 'requested' | 'worktree' | 'work_path' | 'label'>> {
  const label = threadLabel(
    Object.values(secrets).reduce(
      (text, secret) => (secret === '' ? text : text.replaceAll(secret, '***')),
      request.label ?? '',
    ),
  );
  return {
    ...requestedOf(request),
    ...(await planPlace(env, request.isolation, parent)),
    ...(label === '' ? {} : { label }),
  };
}

/** The settings that a refresh of the plan applies again. */
function requestedOf(request: PrepareRequest): Pick<ThreadPlan, 'requested'> {
  const { model, provider, limits = {}, raiseLimits, onlyTools, hookCapabilities = [] } = request;
  const behavior = behaviorOf(request);
  const requested = compact({
    model,
    provider,
    limits: isEmpty(limits) ? undefined : limits,
    raise_limits: raiseLimits === true ? true : undefined,
    behavior: isEmpty(behavior) ? undefined : behavior,
    only_tools: onlyTools,
    hook_capabilities: hookCapabilities.length === 0 ? undefined : hookCapabilities,
  });
  return isEmpty(requested) ? {} : { requested };
}

function isEmpty(value: object): boolean {
  return Object.keys(value).length === 0;
}

/** Returns the behavior that a request asks for, with its schema of outputs. */
export function behaviorOf({ behavior, outputSchema }: PrepareRequest): JsonObject {
  return { ...behavior, ...(outputSchema === undefined ? {} : { schema: outputSchema }) };
}
