import { RyeError } from '../../src/kernel/core/errors.ts';

/** A directive file: `inner` is the content of `<directive>` and starts on line 2; the body follows the fence. */
export function directiveFile(inner: string, body = 'Do it.', attributes = ''): string {
  return `\`\`\`xml\n<directive name="demo" version="1.0.0"${attributes}>\n${inner}\n</directive>\n\`\`\`\n\n${body}\n`;
}

/** A directive file whose metadata is complete and has `inner` in it, from line 4 on. */
export function withMetadata(inner: string, rest = ''): string {
  return directiveFile(`<metadata>\n${inner}\n</metadata>${rest}`);
}

/** The RyeError that `run` throws. */
export function errorOf(run: () => unknown): RyeError {
  try {
    run();
  } catch (error) {
    if (error instanceof RyeError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

/** The RyeError that `promise` rejects with. */
export async function rejectionOf(promise: Promise<unknown>): Promise<RyeError> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof RyeError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

/** `code line:column` of an error. */
export function where({ code, location }: RyeError): string {
  return `${code} ${location?.line ?? ''}:${location?.column ?? ''}`;
}
