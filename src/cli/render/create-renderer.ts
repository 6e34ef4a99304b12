import type { OutputMode } from '../failure.ts';
import type { GlobalOptions } from '../invocation.ts';
import type { Io } from '../io.ts';
import { canRedraw, colorsOf } from '../output.ts';
import { createJsonRenderer, createStreamJsonRenderer } from './json.ts';
import { createLiveRenderer } from './live.ts';
import { runLine } from './progress-line.ts';
import type { Renderer } from './renderer.ts';
import { createTextRenderer } from './text.ts';

export interface RendererOptions {
  readonly mode: OutputMode;
  readonly io: Io;
  readonly global: GlobalOptions;
  /** False: the final result and nothing while it runs. */
  readonly isLive: boolean;
}

/** How notes on the plan of a thread begin. */
const WARNING = 'warning: ';

/** The renderer for an output mode and for what the streams can show. */
export function createRenderer({ mode, io, global, isLive }: RendererOptions): Renderer {
  const isTold = !global.quiet;
  if (mode === 'json') return withWarnings(createJsonRenderer(io), io, isTold);
  if (mode === 'stream-json') return createStreamJsonRenderer(io);
  const colors = colorsOf(io.stderr, io, global);
  const isQuiet = global.quiet || !isLive;
  if (!isQuiet && canRedraw(io.stderr, io.env)) return createLiveRenderer(io, colors);
  return withWarnings(createTextRenderer(io, colors, isQuiet), io, isTold && isQuiet);
}

/** What is wrong with the plan is told on stderr also where nothing else is. */
function withWarnings(renderer: Renderer, io: Io, isTold: boolean): Renderer {
  if (!isTold) return renderer;
  return {
    ...renderer,
    event: (event) => {
      const text = event.event_type === 'note' ? runLine(event)?.text : undefined;
      if (text?.startsWith(WARNING) === true) io.stderr.write(`rye: ${text}\n`);
      renderer.event(event);
    },
  };
}
