import { RyeError } from '../core/errors.ts';
import type { ContentBlock } from '../core/message.ts';
import { scrubText, scrubValue } from './item/secrets.ts';
import type { Tool, ToolOutput } from './tool.ts';

const SECRET_VARIABLE =
  /(?:^|_)(?:(?:API|ACCESS|PRIVATE)?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_|$)/i;
/** What is shorter would be found by chance in ordinary text. */
const MIN_SECRET_LENGTH = 12;

/** Values of environment variables whose name says that they are secret; paths and words are none. */
export function environmentSecrets(
  env: Readonly<Record<string, string | undefined>>,
): readonly string[] {
  return Object.entries(env).flatMap(([name, value = '']) =>
    SECRET_VARIABLE.test(name) && value.length >= MIN_SECRET_LENGTH && !/^\/|\s/.test(value)
      ? [value]
      : [],
  );
}

/**
 * The tool with every known secret replaced by `***` in what leaves it: results, data, live output and errors. So
 * a key that a command prints reaches neither the model nor the log, nor anything that is made of the log.
 */
export function withoutSecrets(tool: Tool, secrets: readonly string[]): Tool {
  if (secrets.length === 0) return tool;
  return {
    ...tool,
    async execute(input, context) {
      const live = scrubbedStream(secrets, (text) => context.progress(text));
      try {
        const output = await tool.execute(input, {
          ...context,
          progress: (text) => live.push(text),
        });
        return scrubbed(output, secrets);
      } catch (error) {
        throw withoutSecretsIn(error, secrets);
      } finally {
        live.end();
      }
    },
  };
}

/**
 * Scrubs a text that comes in pieces: an end that could be the beginning of a secret waits for what follows, so that
 * none passes in two halves.
 */
function scrubbedStream(
  secrets: readonly string[],
  show: (text: string) => void,
): { push(text: string): void; end(): void } {
  let waiting = '';
  return {
    push(text) {
      const clean = scrubText(waiting + text, secrets);
      const begun = Math.max(...secrets.map((secret) => beginningAtEnd(clean, secret)));
      waiting = clean.slice(clean.length - begun);
      if (begun < clean.length) show(clean.slice(0, clean.length - begun));
    },
    end() {
      if (waiting !== '') show(waiting);
      waiting = '';
    },
  };
}

/** Length of the longest end of `text` that begins `secret` without being all of it. */
function beginningAtEnd(text: string, secret: string): number {
  for (let length = Math.min(text.length, secret.length - 1); length > 0; length -= 1) {
    if (text.endsWith(secret.slice(0, length))) return length;
  }
  return 0;
}

function scrubbed(
  { content, data, ...output }: ToolOutput,
  secrets: readonly string[],
): ToolOutput {
  const clean = data === undefined ? undefined : scrubValue(data, secrets);
  return {
    ...output,
    content: content.map(
      (block): ContentBlock =>
        block.type === 'text' ? { ...block, text: scrubText(block.text, secrets) } : block,
    ),
    ...(clean === undefined ? {} : { data: clean as NonNullable<ToolOutput['data']> }),
  };
}

/** The error with every known secret in its message replaced. */
export function withoutSecretsIn(error: unknown, secrets: readonly string[]): unknown {
  if (!(error instanceof Error)) return error;
  const message = scrubText(error.message, secrets);
  if (message === error.message) return error;
  return error instanceof RyeError
    ? new RyeError(error.code, message, { hint: error.hint })
    : new Error(message);
}
