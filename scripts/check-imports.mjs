// Reads dependency-cruiser's JSON report from standard input, prints its violations, and refuses a run that saw no
// module: with a compiler that it can't use the cruiser passes without looking at anything.
import process from 'node:process';
import { json } from 'node:stream/consumers';

const { summary } = await json(process.stdin);
for (const { rule, from, to } of summary.violations) {
  process.stderr.write(`${rule.severity} ${rule.name}: ${from} → ${to}\n`);
}
process.stdout.write(
  `imports: ${summary.totalCruised} modules, ${summary.totalDependenciesCruised} dependencies, ${summary.error} errors\n`,
);
if (summary.totalCruised === 0) process.stderr.write('error: dependency-cruiser saw no modules\n');
process.exitCode = summary.error === 0 && summary.totalCruised > 0 ? 0 : 1;
