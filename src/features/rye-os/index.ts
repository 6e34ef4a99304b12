import { commandsOf, withHeading } from '../../faces/cli/command.ts';
import type { Feature } from '../../faces/cli/feature.ts';

export const ryeOs: Feature = {
  name: 'rye-os',
  commands: withHeading(
    'Write:',
    ...commandsOf(() => import('./cli/import.ts'), {
      import: 'Review items written for another program',
    }),
  ),
};
