import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import type { Renderer } from './renderer.ts';

/** `--output-format json`: the ThreadResult as the only output. */
export function createJsonRenderer(io: Io): Renderer {
  return {
    event: () => {},
    finish: (result) => {
      printDocument(io, result);
    },
    close: () => {},
  };
}

/** `--output-format stream-json`: every event as a line, then the result line. */
export function createStreamJsonRenderer(io: Io): Renderer {
  return {
    event: (event) => {
      printLine(io, JSON.stringify(event));
    },
    finish: (result) => {
      printLine(io, JSON.stringify({ event_type: 'result', ...result }));
    },
    close: () => {},
  };
}
