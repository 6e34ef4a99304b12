import { dirname, isAbsolute, join } from 'node:path';
import type { ThreadSettings } from '../core/plan.ts';
import { closeSandbox, sandboxFor } from '../tools/sandbox.ts';
import type { Foundation } from './foundation.ts';

/** How the commands of a thread with these settings are confined; undefined when they are not. */
export function threadSandbox(
  base: Foundation,
  { sandbox, allow_paths: allowPaths }: Pick<ThreadSettings, 'sandbox' | 'allow_paths'>,
): ReturnType<typeof sandboxFor> {
  const { projectPath, userSpacePath, env } = base.options;
  if (sandbox !== undefined && sandbox.mode !== 'off') base.onClose(endSandbox);
  return sandboxFor({
    mode: sandbox?.mode ?? 'off',
    allowDomains: sandbox?.allow_domains ?? [],
    allowPaths: absolutePaths(allowPaths, projectPath),
    allowCaches: sandbox?.allow_caches ?? [],
    env,
    programPath: dirname(base.systemPath),
    projectPath,
    userSpacePath,
    onNotice: base.notice,
  });
}

/** Requests of HTTP tools leave from this process, so the sandbox's list of hosts is checked for them. */
export function reachableDomains({ sandbox }: Pick<ThreadSettings, 'sandbox'>): {
  readonly allowDomains?: readonly string[];
} {
  return sandbox === undefined || sandbox.mode === 'off'
    ? {}
    : { allowDomains: sandbox.allow_domains };
}

function endSandbox(): void {
  void closeSandbox();
}

/** Configured paths are relative to the project. */
export function absolutePaths(paths: readonly string[], projectPath: string): readonly string[] {
  return paths.map((path) => (isAbsolute(path) ? path : join(projectPath, path)));
}
