import { RyeError } from '../core/errors.ts';
import { didYouMean } from '../core/text.ts';
import type { OpenRyeOptions } from './api/rye.ts';
import type { RunRequest } from './run-types.ts';

const OPEN_OPTIONS: Readonly<Record<keyof OpenRyeOptions, true>> = {
  projectPath: true,
  userSpacePath: true,
  env: true,
  onNotice: true,
  onMcpServer: true,
  eager: true,
  preset: true,
  providers: true,
  tools: true,
  toolSearch: true,
  subscribers: true,
  store: true,
  clock: true,
  ids: true,
  mcpServers: true,
  skills: true,
  configOverrides: true,
  createKey: true,
  unsignedRecords: true,
  features: true,
  program: true,
};

const RUN_OPTIONS: Readonly<Record<keyof RunRequest, true>> = {
  directiveId: true,
  directive: true,
  inputs: true,
  model: true,
  provider: true,
  limits: true,
  isolation: true,
  label: true,
  raiseLimits: true,
  onlyTools: true,
  threadId: true,
  parentThreadId: true,
  acknowledge: true,
  allowUnsigned: true,
  allowUnpriced: true,
  recordTo: true,
  replayFrom: true,
  outputSchema: true,
  behavior: true,
  signal: true,
  preset: true,
  onEvent: true,
  handlers: true,
  system: true,
  mcpServers: true,
  skills: true,
  tools: true,
  followUps: true,
  attendant: true,
  onApproval: true,
};

/** Throws `usage` for an option of `openRye()` that does not exist. */
export function assertOpenOptions(options: OpenRyeOptions): void {
  assertKnown('openRye()', options, OPEN_OPTIONS);
}

/** Throws `usage` for an option of a run that does not exist. */
export function assertRunOptions(request: RunRequest): void {
  assertKnown('run()', request, RUN_OPTIONS);
  if ((request.directive === undefined) !== (request.directiveId === undefined)) return;
  throw new RyeError('usage', 'run() takes one of directive and directiveId', {
    hint: 'Name a file with directiveId, or pass what defineDirective() returns as directive.',
  });
}

function assertKnown(call: string, options: object, known: Readonly<Record<string, true>>): void {
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(known, name));
  if (unknown === undefined) return;
  const names = Object.keys(known);
  throw new RyeError('usage', `unknown option "${unknown}" of ${call}`, {
    hint: didYouMean(unknown, names) ?? `Use one of ${names.join(', ')}.`,
  });
}
