// Many asynchronous children of one parent, and the processor time of one of them: trees of few and of many children, divided
// by the children between them. A tree counts all processes that it waited for: the processes of the threads and of their tools.
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { interleave, measureProcess, median, ms, range, row, times, verdict } from './harness.mjs';

const MANY = Number(process.env.RYE_BENCH_CHILDREN ?? 200);
const FEW = 10;
const TARGET_MS = 90;
/** Rounds of the floor; a tree of many children takes too long for more than one. */
const ROUNDS = 9;
const TREE = fileURLToPath(new URL('./children-tree.mjs', import.meta.url));

const tree = (children, kind) => measureProcess([TREE, String(children), kind]);

export async function run() {
  for (const kind of ['tool', 'model']) {
    const [few, many] = [tree(FEW, kind), tree(MANY, kind)];
    process.stdout.write(many.stdout);
    const floors = await interleave({ 'node -e 0': () => measureProcess(['-e', '0']) }, ROUNDS);
    const floor = floors['node -e 0'].map(({ cpu }) => cpu);
    const each = (many.cpu - few.cpu) / (MANY - FEW);
    const over = times(each / median(floor));
    row('  processor time of one, whole tree', ms(each), over, '', verdict(each, TARGET_MS, ms));
    row('  node -e 0', ms(median(floor)), range(floor, ms));
  }
}
