import { EXIT, type ExitCode, RyeError } from '../../core/errors.ts';
import { toText } from '../../core/json.ts';
import { didYouMean } from '../../core/text.ts';
import { type Invocation, requiredArgument } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye config get PATH`: one value, or everything below the path. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const wanted = requiredArgument(invocation, 0, 'path');
  return withRye(invocation, io, async (rye) => {
    const values = await rye.config(wanted);
    const [first] = values;
    if (first === undefined) throw await unknownPath(wanted, rye.config());
    if (invocation.global.json) {
      printDocument(io, { success: true, values, total: values.length });
    } else if (values.length === 1 && first.path === wanted) {
      printLine(io, toText(first.value));
    } else {
      for (const { path, value } of values) printLine(io, `${path}: ${toText(value)}`);
    }
    return EXIT.ok;
  });
}

async function unknownPath(
  wanted: string,
  known: Promise<readonly { readonly path: string }[]>,
): Promise<RyeError> {
  const paths = (await known).map(({ path }) => path);
  return new RyeError('usage', `there is no configuration value ${JSON.stringify(wanted)}`, {
    hint: didYouMean(wanted, paths) ?? 'See `rye config show`.',
  });
}
