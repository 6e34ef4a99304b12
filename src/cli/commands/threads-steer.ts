import { DELIVERY_MODES } from '../../core/delivery.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { compact } from '../../core/json.ts';
import { readTextSource } from '../files.ts';
import { type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye threads steer <id> <message>`. Run by a thread's tool it speaks for that thread, not for a person. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  const given = requiredArgument(invocation, 1, 'message');
  const message = given === '-' ? await readTextSource(given, 'the message', io) : given;
  const sender = io.env['RYE_PARENT_THREAD_ID'];
  const options = compact({
    mode: DELIVERY_MODES.find((mode) => mode === textOption(invocation, 'mode')),
    from: sender === '' ? undefined : sender,
  });
  const sent = await withRye(invocation, io, async ({ threads, deliveries }) =>
    deliveries.send(await threads.resolveId(part), message, options),
  );
  const { delivery, outlook } = sent;
  if (invocation.global.json) printDocument(io, { success: true, delivery, outlook });
  else printLine(io, `delivery ${delivery.seq} to ${delivery.thread_id}: ${outlook}`);
  return EXIT.ok;
}
