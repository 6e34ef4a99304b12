import { commandsOf, withHeading } from '../../faces/cli/command.ts';
import type { Feature } from '../../faces/cli/feature.ts';
import type { FleetService } from '../../kernel/app/api/fleet.ts';
import { lazy } from '../../kernel/app/lazy.ts';

export const fleet: Feature = {
  name: 'fleet',
  store: async () => (await import('./store.ts')).postgresStore,
  services: (workspace) => ({
    fleet: lazy<FleetService>(
      async () => (await import('./service.ts')).fleetService(workspace),
      {},
    ),
  }),
  checks: async (workspace) => await (await import('./doctor.ts')).examineFleet(workspace),
  commands: withHeading(
    'Operate:',
    ...commandsOf(() => import('./cli/fleet.ts'), { fleet: 'Run threads on many machines' }),
    ...commandsOf(() => import('./cli/worker.ts'), {
      worker: 'Run the threads of a fleet on this machine',
    }),
  ),
  internal: commandsOf(() => import('./cli/run-leg.ts'), {
    '__run-leg': 'Run legs of a fleet in this process',
  }),
};
