import { isTaintNote } from '../policy/risk.ts';
import { resolveDirective } from '../threads/prepare/directive.ts';
import { planCapabilities } from '../threads/prepare/policy.ts';
import { closeSandbox, sandboxState } from '../tools/sandbox.ts';
import type { Foundation } from './foundation.ts';
import type { DoctorLine } from './rye.ts';
import { readThreadConfig } from './settings.ts';
import { threadEnv } from './thread-env.ts';

type Finding = Omit<DoctorLine, 'check'>;

/** More directives than this are not planned one by one. */
const MAX_PLANNED = 100;

/** What the sandbox is set to, and whether a command can really be confined on this machine: it is tried. */
export async function checkSandbox(base: Foundation): Promise<Finding> {
  const { settings } = await readThreadConfig(await base.config());
  const mode = settings.sandbox?.mode ?? 'off';
  const { available, detail } = await sandboxState();
  await closeSandbox();
  const here = available ? `${detail} works here` : `none here (${detail})`;
  const hosts = settings.sandbox?.allow_domains ?? [];
  const network = hosts.length === 0 ? 'no network' : `network: ${hosts.join(', ')}`;
  if (mode === 'off') {
    return {
      status: 'ok',
      detail: `off: tools run with your rights; ${here}`,
      ...(available ? { hint: 'To use it, set tools.sandbox: required in resilience.yaml.' } : {}),
    };
  }
  if (available) return { status: 'ok', detail: `${mode}: ${detail}, ${network}` };
  const consequence = mode === 'auto' ? 'tools run without one' : 'bash and item tools are refused';
  return {
    status: mode === 'auto' ? 'warn' : 'fail',
    detail: `${mode}, but ${here}: ${consequence}`,
    hint: 'On Linux install bubblewrap, socat and ripgrep, and allow unprivileged user namespaces.',
  };
}

/** Names the project's directives that hold private data, untrusted content and an outward channel at once. */
export async function checkTaint(base: Foundation): Promise<Finding> {
  const config = await readThreadConfig(await base.config());
  const { items, tools } = threadEnv(base, { allowUnsigned: false });
  const directives = base.spaces.list('directive', { space: 'project' }).slice(0, MAX_PLANNED);
  const tainted: string[] = [];
  for (const { id } of directives) {
    try {
      const { composed } = await resolveDirective(items, config, { directiveId: id, inputs: {} });
      const capabilities = planCapabilities(composed, undefined);
      const { warnings } = await tools.granted(capabilities, {
        preloadTokens: 0,
        mayConnect: false,
      });
      if (warnings.some(isTaintNote)) tainted.push(id);
    } catch {
      // one that cannot run at all leaks nothing
    }
  }
  if (tainted.length === 0)
    return { status: 'ok', detail: 'no directive of the project holds all three' };
  return {
    status: 'warn',
    detail: `${tainted.join(', ')}: private data, untrusted content and an outward channel in one thread`,
    hint: 'See why with: rye run DIRECTIVE --dry-run. Split the work over children that hold less.',
  };
}
