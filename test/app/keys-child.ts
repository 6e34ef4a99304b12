// One of several processes that trust a key of their project at once, each in its own project.
import { readFileSync } from 'node:fs';
import { openRye } from '../../src/open-rye.ts';

const [userSpacePath = '', projectPath = '', file = ''] = process.argv.slice(2);
const rye = openRye({ projectPath, userSpacePath, env: { HOME: userSpacePath } });
await rye.keys.trust(readFileSync(file, 'utf8'), { owner: 'team', purposes: ['sign'] });
rye.close();
