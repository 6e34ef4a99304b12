import { argument } from './command.ts';

/** The argument that names a thread. */
export const THREAD = argument('Thread ID, or a unique start or end of it');
