import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { runCommand, timerText } from '../../src/features/schedules/system-timers.ts';
import type { Timer } from '../../src/kernel/app/api/schedules.ts';
import { readSchedules } from '../../src/kernel/schedules/schedule.ts';

const PLAIN = { cron: '0 3 * * *', timezone: 'Europe/Berlin', directive: 'reports/weekly' };

function text(timer: Timer, members: object = {}): string {
  const [schedule] = readSchedules({ schedules: { nightly: { ...PLAIN, ...members } } }, 'f.yaml');
  if (!schedule) throw new Error('no schedule');
  return timerText(timer, { ...schedule, projectPath: "/srv/it's 100%" });
}

const { version: VERSION } = JSON.parse(readFileSync('package.json', 'utf8')) as {
  readonly version: string;
};

// Requirement: installs-own-package
it('every line that installs rye names its own package and runs no scripts', () => {
  const pages = readdirSync('docs').filter((name) => name.endsWith('.md'));
  const texts = ['README.md', ...pages.map((name) => `docs/${name}`)].map((file) =>
    readFileSync(file, 'utf8'),
  );
  const lines = [...texts, text('actions')].flatMap(
    (page) =>
      page.match(/npm (?:install|i|add|exec)\b[^`\n]*\brye\b[^`\n]*|npx [^`\n]*\brye\b[^`\n]*/g) ??
      [],
  );
  expect(lines.length).toBeGreaterThan(3);
  for (const line of lines) {
    expect(line).toMatch(/--ignore-scripts .*\brye-threads(?:-|@)\d+\.\d+\.\d+/);
    expect(line).toContain(VERSION);
    expect(line.replaceAll(/rye-threads[-@][\d.]+/g, '')).not.toMatch(/\brye(?:@|\s|$)/);
  }
});

describe('cron', () => {
  it('gets a line with the zone, the folder and the command', () => {
    const lines = text('cron', { inputs: { who: 'Ada' }, limits: { spend: 0.5 } }).split('\n');
    expect(lines.slice(-2)).toEqual([
      'CRON_TZ=Europe/Berlin',
      `0 3 * * * cd '/srv/it'\\''s 100\\%' && mkdir -p .ai/state && flock -n -o .ai/state/schedule-nightly.lock rye run reports/weekly --input who=Ada --limit spend=0.5`,
    ]);
    expect(text('cron', { overlap: true })).toMatch(/&& rye run reports\/weekly$/);
  });

  it.each(['cron', 'actions'] as const)('is refused missed times, as is %s', (timer) => {
    for (const missed of ['once', 'all']) {
      expect(() => text(timer, { missed })).toThrow(`${timer} makes up no missed times`);
    }
    expect(text('actions')).toContain('\nconcurrency:\n  group: rye-nightly\n');
    expect(text('actions', { overlap: true })).not.toContain('concurrency');
    expect(text(timer, { missed: 'skip' })).toContain('Missed times are skipped');
  });

  it('passes each value to the command as it is', () => {
    const inputs = { text: `a 'b' "c" $d \`e\` \\f\n@g %`, list: [1, 'two'], file: '@secret' };
    const line =
      text('cron', { inputs, label: 'Every night', overlap: true }).split('\n').at(-1) ?? '';
    const command = line.slice(line.indexOf('&& rye ') + 3).replaceAll('\\%', '%');
    const printed = execFileSync('/bin/sh', ['-c', `rye() { printf '%s\\0' "$@"; }; ${command}`], {
      encoding: 'utf8',
    });
    const words = printed.split('\0').slice(0, -1);
    expect(words).toEqual([
      'run',
      'reports/weekly',
      '--inputs',
      JSON.stringify(inputs),
      '--label',
      'Every night',
    ]);
    expect(line).not.toContain('\n');
  });
});

describe('systemd', () => {
  it('gets a service and a timer', () => {
    const units = text('systemd', { missed: 'once', inputs: { cost: '5$ = 100%' } });
    expect(units).toContain("WorkingDirectory=/srv/it's 100%%\n");
    expect(units).toContain(
      'ExecStart=/usr/bin/env rye run reports/weekly --input "cost=5$$ = 100%%"\n',
    );
    expect(units).toContain('OnCalendar=*-*-* 03:00:00 Europe/Berlin\n');
    expect(units).toContain('Persistent=true\n');
    expect(text('systemd')).toContain('Persistent=false\n');
    expect(() => text('systemd', { overlap: true })).toThrow('starts no service that still runs');
  });

  it.each([
    ['*/15 9-17 * * 1-5', ['Mon,Tue,Wed,Thu,Fri *-*-* 09,10,11,12,13,14,15,16,17:00,15,30,45:00']],
    ['30 0 12 * jul 7', ['Sun *-07-* 12:00:30']],
    ['0 0 13 * fri', ['*-*-13 00:00:00', 'Fri *-*-* 00:00:00']],
    ['0 0 */10 * 1', ['Mon *-*-01,11,21,31 00:00:00']],
    ['* * * * *', ['*-*-* *:*:00']],
  ])('translates %s', (cron, calendars) => {
    const lines = text('systemd', { cron }).split('\n');
    const found = lines.filter((line) => line.startsWith('OnCalendar='));
    expect(found).toEqual(calendars.map((one) => `OnCalendar=${one} Europe/Berlin`));
  });
});

describe('GitHub Actions', () => {
  it('gets a workflow with the zone, a job without a signing key and one that signs', () => {
    const inputs = { note: `it's \${{ secrets.KEY }}: "x"` };
    const workflow = parse(text('actions', { inputs })) as {
      on: { schedule: unknown };
      jobs: Record<'run' | 'sign', { steps: { run?: string; env?: object }[]; env?: object }>;
    };
    expect(workflow.on.schedule).toEqual([{ cron: '0 3 * * *', timezone: 'Europe/Berlin' }]);
    const { run, sign } = workflow.jobs;
    expect(JSON.stringify(run)).not.toContain('RYE_SIGNING_KEY');
    const commands = run.steps.flatMap((step) => step.run ?? []);
    expect(commands[0]).toBe(`npm install --global --ignore-scripts ./rye-threads-${VERSION}.tgz`);
    // GitHub replaces the expression by the text in it
    expect(commands[1]?.replaceAll("${{ '${{' }}", '${{')).toBe(
      `rye run reports/weekly --input 'note=it'\\''s \${{ secrets.KEY }}: "x"' --unsigned-record --thread-id nightly-$GITHUB_RUN_ID-$GITHUB_RUN_ATTEMPT`,
    );
    expect(commands[1]).not.toContain('${{ secrets');
    // the step that installs runs other people's programs: it gets no key, and runs none of their scripts
    expect(Object.keys(sign.env ?? {})).toEqual(['RYE_TRUSTED_KEYS']);
    const withKey = sign.steps.filter(({ env }) => env !== undefined);
    expect(withKey).toMatchObject([
      { run: 'rye sign thread nightly-$GITHUB_RUN_ID-$GITHUB_RUN_ATTEMPT --yes' },
    ]);
    expect(Object.keys(withKey[0]?.env ?? {})).toEqual(['RYE_SIGNING_KEY']);
  });
});

it.each(['cron', 'actions'] as const)('%s refuses seconds', (timer) => {
  expect(() => text(timer, { cron: '30 0 3 * * *' })).toThrow('has no seconds');
});

it('the command names every option of the schedule', () => {
  const entry = {
    ...PLAIN,
    model: 'm',
    provider: 'p',
    raise_limits: true,
    acknowledge: ['elevated' as const],
    allow_unpriced: true,
    isolation: { kind: 'worktree' as const, result: 'merge' as const },
    output_schema: { type: 'object' },
  };
  expect(runCommand({ entry }).join(' ')).toBe(
    'rye run reports/weekly --model m --provider p --raise-limits --acknowledge elevated --allow-unpriced --isolation worktree --isolation-result merge --json-schema {"type":"object"}',
  );
});
