import { FEATURES } from './features/shipped.ts';
import type { OpenRyeOptions, Rye } from './kernel/app/api/rye.ts';
import { openRye as openKernel } from './kernel/app/open-rye.ts';
import {
  runThreadProcess as runKernelProcess,
  type ThreadProcessOptions,
} from './kernel/app/thread-process.ts';
import type { ThreadResult } from './kernel/core/thread.ts';

/** Runs the thread that a process was started for, with all features. See `runThreadProcess` of the kernel. */
export async function runThreadProcess(options: ThreadProcessOptions): Promise<ThreadResult> {
  return await runKernelProcess({ features: FEATURES, ...options });
}

/** Opens rye with all features that this package ships. See `openRye` of the kernel. */
export function openRye(options: OpenRyeOptions): Rye {
  return openKernel({ features: FEATURES, ...options });
}
