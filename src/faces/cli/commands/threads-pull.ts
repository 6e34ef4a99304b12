import { oneLine, shown } from '../../ui/visible.ts';
import { defineCommand } from '../command.ts';
import { count, displayPath, printResult } from '../output.ts';
import { withRye } from '../session.ts';
import { THREAD } from '../shared-options.ts';

export const pull = defineCommand({
  details:
    'Verifies the thread first. Its log is then in `.ai/state/threads/ID/transcript.jsonl`, byte for byte, beside its other files, so that `rye verify thread ID` needs no database. A running thread is copied up to its last signature; pull it again for the rest.',
  arguments: { id: THREAD },
  examples: ['rye threads pull 2456'],
  run: async (call) => {
    const pulled = await withRye(
      call,
      async ({ threads }) => await threads.pull(await threads.resolveId(call.args.id)),
    );
    const { thread_id: id, folder, bytes } = pulled;
    return printResult(call, pulled, () => [
      shown`${oneLine(id)}: ${count(bytes, 'byte')} in ${displayPath(folder, call.io)}`,
    ]);
  },
});
