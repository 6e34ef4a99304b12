import { EXIT, type ExitCode } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye hooks schema [event]`: what conditions and `${…}` of a hook may read. JSON either way. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const schemas = await withRye(invocation, io, (rye) => rye.hookSchemas(invocation.args[0]));
  if (invocation.global.json) {
    const found = Object.entries(schemas).map(([event, schema]) => ({ event, schema }));
    printDocument(io, { success: true, schemas: found, total: found.length });
    return EXIT.ok;
  }
  const [only, ...others] = Object.values(schemas);
  const shown: JsonObject = others.length === 0 && only !== undefined ? only : schemas;
  io.stdout.write(`${JSON.stringify(shown, null, 2)}\n`);
  return EXIT.ok;
}
