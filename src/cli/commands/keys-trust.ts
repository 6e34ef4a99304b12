import { EXIT, type ExitCode } from '../../core/errors.ts';
import { compact } from '../../core/json.ts';
import { confirm } from '../confirm.ts';
import { readTextSource } from '../files.ts';
import { type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

/** `rye keys trust FILE|-`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const text = await readTextSource(requiredArgument(invocation, 0, 'file'), 'rye keys trust', io);
  const owner = textOption(invocation, 'owner');
  const key = await withRye(invocation, io, async (rye) => {
    const offer = await rye.keys.inspect(text, compact({ owner }));
    const scope = offer.projects === undefined ? 'everywhere' : offer.projects.join(', ');
    await confirm(invocation, io, {
      facts: [
        `key ${offer.key_id} of ${offer.owner}, trusted in: ${scope}`,
        'Everything that it signed will run with your rights. Compare its fingerprint with its owner.',
      ],
      question: 'Trust it?',
    });
    return await rye.keys.trust(text, compact({ owner }));
  });
  if (invocation.global.json) printDocument(io, { success: true, ...key });
  else printLine(io, oneLine(`trusted ${key.key_id} (${key.owner})`));
  return EXIT.ok;
}
