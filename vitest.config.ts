import { tmpdir } from 'node:os';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { definitions } from './scripts/define.mjs';

/** Take long: faults of a fleet and of disks, corpora, memory. `npm test` leaves them to `npm run test:all`. */
const CAMPAIGNS = ['test/**/*.campaign.test.ts'];
/** Leave something in their process, or measure it: each file has its own. */
const ALONE = [
  'test/{browser,deliveries,engineering,fuzz,requirements,startup,storage}/**/*.test.ts',
  'test/loop/model-call.test.ts',
  'test/tools/builtin/read.test.ts',
];

const ALONE_CAMPAIGNS = [
  'test/{app,browser,deliveries,engineering,storage}/**/*.campaign.test.ts',
  'test/threads/{idle-process,many-children}.campaign.test.ts',
];
/** `npm test` keeps the folders of its tests in memory where it can; the names of the others are those of the person. */
const DISK = { TMPDIR: process.env['TMPDIR'] ?? tmpdir() };

/** Try a few points each, and in a campaign all of theirs. */
const DEEPER = [
  'test/approvals/itself.test.ts',
  'test/attacks/unsigned-log.test.ts',
  'test/log/{scanner,verifier}.test.ts',
  'test/threads/{session-oracle,undo-model}.test.ts',
];

/** Take a minute and more each. The campaigns begin with them, so that none runs on alone at the end. */
const LONGEST = [
  'faults/crash-bill',
  'engineering/features',
  'cli/signals',
  'fleet/outage',
  'faults/kill',
  'system/docs',
  'deliveries/mutants',
  'fleet/hostile-columns',
  'faults/merge',
  'fleet/source',
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification): number => {
      const place = LONGEST.findIndex((name) => moduleId.includes(`/test/${name}.`));
      return place < 0 ? LONGEST.length : place;
    };
    return (await super.sort(files)).toSorted((a, b) => rank(a) - rank(b));
  }
}

export default defineConfig({
  define: await definitions(),
  test: {
    projects: [
      {
        // the others share the processes of the workers, which load the program once
        extends: true,
        test: {
          name: 'shared',
          include: ['test/**/*.test.ts'],
          exclude: [...ALONE, ...CAMPAIGNS],
          isolate: false,
        },
      },
      { extends: true, test: { name: 'alone', include: ALONE, exclude: CAMPAIGNS } },
      {
        extends: true,
        test: {
          name: 'campaign',
          include: [...CAMPAIGNS, ...DEEPER],
          exclude: ALONE_CAMPAIGNS,
          env: { ...DISK, RYE_FAULTS: process.env['RYE_FAULTS'] ?? '3' },
          isolate: false,
        },
      },
      { extends: true, test: { name: 'campaign-alone', include: ALONE_CAMPAIGNS, env: DISK } },
    ],
    sequence: { sequencer: LongestFirst },
    globalSetup: ['test/helpers/cli-package-setup.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: 'forks',
    // most tests wait for processes that they started, so that one worker a core leaves the cores idle
    maxWorkers: 4,
  },
});
