import { argument } from './command.ts';

/** The argument that names a thread. */
export const THREAD = argument(
  'Thread ID, a unique start or end of it, @ for the last thread, or @2 for the one before',
  { isThread: true },
);
