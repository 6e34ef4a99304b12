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
      try {
        const output = await tool.execute(input, {
          ...context,
          progress: (text) => context.progress(scrubText(text, secrets)),
        });
        return scrubbed(output, secrets);
      } catch (error) {
        throw withoutSecretsIn(error, secrets);
      }
    },
  };
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

function withoutSecretsIn(error: unknown, secrets: readonly string[]): unknown {
  if (!(error instanceof Error)) return error;
  const message = scrubText(error.message, secrets);
  if (message === error.message) return error;
  return error instanceof RyeError
    ? new RyeError(error.code, message, { hint: error.hint })
    : new Error(message);
}
