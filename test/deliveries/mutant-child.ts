import { simulate } from './sim.ts';

const [folder = '', seeds] = process.argv.slice(2);
for (let seed = 1; seed <= Number(seeds); seed += 1) {
  const { violations } = await simulate({ seed, actions: 700, folder });
  if (violations.length > 0) process.exit(9);
}
