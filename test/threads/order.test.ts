import { expect, it } from 'vitest';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import { libraryLab } from '../app/library-lab.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';

/** An event by its type and by who speaks, or which turn it belongs to. */
function line({ event_type, payload }: LogEvent | UnknownEvent): string {
  const { message, turn, custom_type, status } = payload as Record<string, unknown>;
  const { role } = (message ?? {}) as { role?: string };
  const facts = [
    role,
    custom_type,
    status,
    turn === undefined ? undefined : `turn ${JSON.stringify(turn)}`,
  ];
  return [event_type, ...facts.filter((fact) => typeof fact === 'string')].join(' ');
}

/** Deltas are merged and checkpoints shared by time, and only an answer that takes long is noted at its start. */
const BY_TIME = /_delta$|^(?:answer_started|checkpoint)$/;

// Requirement: setup-order, first-message-recorded, later-messages-announced, run-open-close
it('a whole run, from its start to its end', async () => {
  const lab = await libraryLab([
    calls(toolUse('rye_file_system_ls', {}, 'a')),
    reply('Done.'),
    reply('Better.'),
  ]);
  await lab.directive('work', ['rye/file-system/ls']);
  const lines: string[] = [];
  const outcome = await lab.open().run({
    directiveId: 'team/work',
    followUps: ['Better, please.'],
    handlers: {
      event: (event) => {
        if (!BY_TIME.test(event.event_type)) lines.push(line(event));
      },
    },
  });
  expect(outcome.kind).toBe('completed');
  await expect(`${lines.join('\n')}\n`).toMatchFileSnapshot('../golden/traces/thread.txt');
});
