import { closeSandbox } from '../../src/kernel/tools/proxied-sandbox.ts';
import { sandboxState } from '../../src/kernel/tools/sandbox.ts';

/** True if this machine can confine commands. */
export async function sandboxWorks(allowDomains: readonly string[] = []): Promise<boolean> {
  const { available } = await sandboxState({
    mode: 'required',
    allowDomains,
    projectPath: '/project',
    programPath: process.cwd(),
    env: process.env,
  });
  await closeSandbox();
  return available;
}
