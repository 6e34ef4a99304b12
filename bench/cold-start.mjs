// Whole processes against `node -e 0`. Targets: --version 1.3×, --help 1.6×, threads list 2.5×.
import { interleave, median, ms, openWorkspace, RYE, ratio, row, timeProcess } from './harness.mjs';

const ROUNDS = 15;

export async function run() {
  const { env, project, close } = openWorkspace();
  const process = (...args) => [
    args.join(' '),
    () => timeProcess([RYE, ...args], { cwd: project, env }),
  ];
  try {
    const samples = await interleave(
      {
        'node -e 0': () => timeProcess(['-e', '0'], { cwd: project, env }),
        ...Object.fromEntries([
          process('--version'),
          process('--help'),
          process('threads', 'list'),
          process('run', 'hello', '-q'),
        ]),
      },
      ROUNDS,
    );
    const floor = samples['node -e 0'];
    row('cold start', 'median', 'ratio', 'best ratio');
    for (const [name, values] of Object.entries(samples)) {
      row(
        `  ${name}`,
        ms(median(values)),
        ratio(median(values), median(floor)),
        ratio(Math.min(...values), Math.min(...floor)),
      );
    }
  } finally {
    close();
  }
}
