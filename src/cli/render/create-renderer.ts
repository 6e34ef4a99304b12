import type { OutputMode } from '../failure.ts';
import type { GlobalOptions } from '../invocation.ts';
import type { Io } from '../io.ts';
import { canRedraw, colorsOf } from '../output.ts';
import { createJsonRenderer, createStreamJsonRenderer } from './json.ts';
import { createLiveRenderer } from './live.ts';
import type { Renderer } from './renderer.ts';
import { createTextRenderer } from './text.ts';

export interface RendererOptions {
  readonly mode: OutputMode;
  readonly io: Io;
  readonly global: GlobalOptions;
  /** False: the final result and nothing while it runs. */
  readonly isLive: boolean;
}

/** The renderer for an output mode and for what the streams can show. */
export function createRenderer({ mode, io, global, isLive }: RendererOptions): Renderer {
  if (mode === 'json') return createJsonRenderer(io);
  if (mode === 'stream-json') return createStreamJsonRenderer(io);
  const colors = colorsOf(io.stderr, io, global);
  const isQuiet = global.quiet || !isLive;
  if (!isQuiet && canRedraw(io.stderr, io.env)) return createLiveRenderer(io, colors);
  return createTextRenderer(io, colors, isQuiet);
}
