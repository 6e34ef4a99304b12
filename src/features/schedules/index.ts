import { commandsOf, withHeading } from '../../faces/cli/command.ts';
import type { Feature } from '../../faces/cli/feature.ts';
import type { SchedulesService } from '../../kernel/app/api/schedules.ts';
import { lazy } from '../../kernel/app/lazy.ts';

export const schedules: Feature = {
  name: 'schedules',
  services: (workspace) => ({
    schedules: lazy<SchedulesService>(
      async () => new (await import('./service.ts')).Schedules(workspace),
      {},
    ),
  }),
  files: {
    schedules: async (file) => {
      const [{ readSchedules }, { readConfigFile }] = await Promise.all([
        import('../../kernel/schedules/schedule.ts'),
        import('../../kernel/items/config-fs.ts'),
      ]);
      readSchedules((await readConfigFile(file)).value, file.path);
    },
  },
  commands: withHeading(
    'Operate:',
    ...commandsOf(() => import('./cli/schedule.ts'), {
      schedule: 'Run directives at set times',
    }),
  ),
};
