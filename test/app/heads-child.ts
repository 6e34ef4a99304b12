// One of several processes that note heads of threads `<name>-0`, `<name>-1`, … in one file at once.
import { HeadsFile } from '../../src/kernel/threads/heads-fs.ts';

const [location = '', name = '', count = '0'] = process.argv.slice(2);
const file = new HeadsFile(location);
// a long head: files are put aside often
const head = {
  status: 'completed',
  epoch: 1,
  updated_at: '',
  sha256: 's'.repeat(3000),
  events: 1,
} as const;
for (let at = 0; at < Number(count); at += 1) {
  file.note({ ...head, thread_id: `${name}-${at}`, bytes: at, knowledge_sha256: null });
}
