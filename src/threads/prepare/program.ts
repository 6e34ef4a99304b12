import { RyeError } from '../../core/errors.ts';
import type { ProgramParts, ThreadPlan } from '../../core/plan.ts';
import type { ThreadEnv } from '../ports.ts';

const HINT =
  'docs/library.md, "Threads in other processes", shows how a program runs its threads in processes of their own.';

/** What a plan depends on; nothing where no function of a program can decide anything about the thread. */
export function programOf(
  { program }: Pick<ThreadEnv, 'program'>,
  granted: readonly { readonly id: string }[],
): { readonly program?: ProgramParts } {
  if (!program) return {};
  const { handlers } = program;
  const tools = program.tools.filter((id) => granted.some((tool) => tool.id === id));
  return handlers.length === 0 && tools.length === 0 ? {} : { program: { handlers, tools } };
}

/** Refuses to run a thread without the functions that it was approved with: `program_required`. */
export function assertProgram(env: ThreadEnv, { program }: ThreadPlan, threadId: string): void {
  if (!program) return;
  const handlers = program.handlers.filter((name) => env.program?.handlers.includes(name) !== true);
  const tools = program.tools.filter((id) => env.program?.tools.includes(id) !== true);
  if (handlers.length === 0 && tools.length === 0) return;
  throw required(`the thread ${threadId} was started by a program with`, { handlers, tools });
}

/** Refuses to start a process that would not have the functions that a thread was approved with: `program_required`. */
export function assertTravels({ program: parts }: ThreadEnv, { program }: ThreadPlan): void {
  if (!program || parts?.travels === true) return;
  throw required('a process of its own would run the thread without', program);
}

function required(what: string, { handlers, tools }: ProgramParts): RyeError {
  const named = [
    ...(handlers.length > 0 ? [`the handlers ${handlers.join(', ')}`] : []),
    ...(tools.length > 0 ? [`the tools ${tools.join(', ')}`] : []),
  ].join(' and ');
  return new RyeError('program_required', `${what} ${named}, which this one does not have`, {
    hint: HINT,
    details: { handlers, tools },
  });
}
