import type { Timer } from '../../kernel/app/api/schedules.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import type { Schedule } from '../../kernel/schedules/schedule.ts';

declare const __RYE_VERSION__: string;

export interface TimerRequest extends Schedule {
  readonly projectPath: string;
}

/** Returns the text that has a timer of the system run the schedule's directive. Throws `usage` if the timer cannot. */
export function timerText(timer: Timer, request: TimerRequest): string {
  const { times, name, entry } = request;
  if (timer === 'systemd') {
    if (entry.overlap === true)
      throw new RyeError('usage', `schedule ${name}: systemd starts no service that still runs`, {
        hint: 'Remove --overlap, or use --print cron.',
      });
    return systemdUnits(request);
  }
  if (entry.missed === 'once' || entry.missed === 'all')
    throw new RyeError('usage', `schedule ${name}: ${timer} makes up no missed times`, {
      hint: 'Remove --missed, or use --print systemd.',
    });
  if (times.cron.split(' ').length === 6)
    throw new RyeError('usage', `schedule ${name}: ${timer} has no seconds: ${times.cron}`, {
      hint: 'Use five fields, or --print systemd.',
    });
  return timer === 'cron' ? crontab(request) : workflow(request);
}

/** Returns the command line of the run, without a shell's quotes. */
export function runCommand({ entry }: Pick<Schedule, 'entry'>): readonly string[] {
  const { inputs = {}, limits = {}, isolation, output_schema: schema } = entry;
  const pairs = Object.entries(inputs);
  const isPlain = pairs.every(
    ([name, value]) =>
      typeof value === 'string' && !/^@|^-$|\p{Cc}/u.test(value) && !/[=\p{Cc}]/u.test(name),
  );
  return [
    'rye',
    'run',
    entry.directive,
    ...(isPlain
      ? pairs.flatMap(([name, value]) => ['--input', `${name}=${String(value)}`])
      : ['--inputs', JSON.stringify(inputs)]),
    ...option('--model', entry.model),
    ...option('--provider', entry.provider),
    ...Object.entries(limits).flatMap(([name, value]) => ['--limit', `${name}=${value}`]),
    ...(entry.raise_limits === true ? ['--raise-limits'] : []),
    ...(entry.acknowledge ?? []).flatMap((risk) => ['--acknowledge', risk]),
    ...(entry.allow_unpriced === true ? ['--allow-unpriced'] : []),
    ...option('--label', entry.label),
    ...option('--isolation', isolation?.kind),
    ...option('--isolation-result', isolation?.result),
    ...option('--json-schema', schema && JSON.stringify(schema)),
  ];
}

function option(name: string, value: string | undefined): readonly string[] {
  return value === undefined ? [] : [name, value];
}

function crontab({ name, entry, times, projectPath }: TimerRequest): string {
  const run = runCommand({ entry }).map(shellWord).join(' ');
  // the lock is not passed on: a process that the run leaves in the background must not hold it
  const alone = `mkdir -p .ai/state && flock -n -o .ai/state/schedule-${name}.lock ${run}`;
  const command = `cd ${shellWord(projectPath)} && ${entry.overlap === true ? run : alone}`;
  return [
    `# rye schedule ${name}. Some crons ignore CRON_TZ and use the zone of the machine. Missed times are skipped.`,
    `CRON_TZ=${times.zone.name}`,
    // cron reads a percent sign as the end of the line
    `${times.cron} ${command.replaceAll('%', '\\%')}`,
  ].join('\n');
}

function workflow({ name, entry, times }: TimerRequest): string {
  const thread = `${name}-$GITHUB_RUN_ID-$GITHUB_RUN_ATTEMPT`;
  const command = runCommand({ entry }).map(shellWord).join(' ');
  const run = `${command.replaceAll('${{', "${{ '${{' }}")} --unsigned-record --thread-id ${thread}`;
  const files = `path: |
            .ai/state/threads
            .ai/knowledge/agent/threads
          include-hidden-files: true`;
  const prepare = `runs-on: ubuntu-latest
    env:
      RYE_TRUSTED_KEYS: \${{ secrets.RYE_TRUSTED_KEYS }}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-node@v4
        with: { node-version: 24 }
      - run: npm install --global --ignore-scripts ./rye-threads-${__RYE_VERSION__}.tgz`;
  return `# .github/workflows/${name}.yml. Missed times are skipped.
# rye-threads-${__RYE_VERSION__}.tgz is made by \`npm pack\` in a clone of rye: \`rye\` in the registry is another package.
name: ${name}
on:
  schedule:
    - cron: ${quoted(times.cron)}
      timezone: ${quoted(times.zone.name)}
permissions:
  contents: read
${entry.overlap === true ? '' : `concurrency:\n  group: rye-${name}\n  cancel-in-progress: false\n`}jobs:
  run: # has the model and its tools, and no signing key
    ${prepare}
      - run: ${quoted(run)}
        env: {} # the key of the provider, such as ANTHROPIC_API_KEY
      - if: always()
        uses: actions/upload-artifact@v4
        with:
          name: unsigned
          ${files}
  sign: # has the signing key, and runs no model
    needs: run
    if: always()
    ${prepare}
      - uses: actions/download-artifact@v4
        with: { name: unsigned, path: .ai }
      - run: ${quoted(`rye sign thread ${thread} --yes`)}
        env:
          RYE_SIGNING_KEY: \${{ secrets.RYE_SIGNING_KEY }}
      - uses: actions/upload-artifact@v4
        with:
          name: signed
          ${files}`;
}

/** Returns a text as a quoted scalar: JSON is a part of YAML. */
function quoted(text: string): string {
  return JSON.stringify(text);
}

function systemdUnits({ name, entry, times, projectPath }: TimerRequest): string {
  const command = runCommand({ entry }).map(unitWord).join(' ');
  const { missed = 'skip' } = entry;
  return [
    `# rye-${name}.service`,
    '[Unit]',
    `Description=rye schedule ${name}`,
    '',
    '[Service]',
    'Type=oneshot',
    `WorkingDirectory=${projectPath.replaceAll('%', '%%')}`,
    `ExecStart=/usr/bin/env ${command}`,
    '',
    `# rye-${name}.timer`,
    '[Unit]',
    `Description=Times of rye schedule ${name}`,
    '',
    '[Timer]',
    ...calendars(times.cron).map((text) => `OnCalendar=${text} ${times.zone.name}`),
    'AccuracySec=1s',
    ...(missed === 'all' ? ['# systemd makes up only the last of several missed times'] : []),
    `Persistent=${missed === 'skip' ? 'false' : 'true'}`,
    '',
    '[Install]',
    'WantedBy=timers.target',
  ].join('\n');
}

const MONTHS = 'jan feb mar apr may jun jul aug sep oct nov dec'.split(' ');
const DAYS = 'sun mon tue wed thu fri sat'.split(' ');

/** Returns the calendar events of systemd for an expression: two if either of two fields of days may match. */
function calendars(cron: string): readonly string[] {
  const fields = cron.split(' ');
  const [second = '0', minute = '', hour = '', day = '', month = '', weekday = ''] =
    fields.length === 6 ? fields : ['0', ...fields];
  const time = [
    listOf(hour, { low: 0, high: 23 }),
    listOf(minute, { low: 0, high: 59 }),
    listOf(second, { low: 0, high: 59 }),
  ].join(':');
  const months = listOf(month, { low: 1, high: 12, names: MONTHS });
  const days = listOf(day, { low: 1, high: 31 });
  const numbers = valuesOf(weekday, { low: 0, high: 7, names: DAYS }).map((one) => one % 7);
  const names = [...new Set(numbers)].toSorted((one, two) => one - two).map(weekdayName);
  const onDays = weekday === '*' ? '' : `${names.join(',')} `;
  if (day.includes('*') || weekday.includes('*')) return [`${onDays}*-${months}-${days} ${time}`];
  return [`*-${months}-${days} ${time}`, `${onDays}*-${months}-* ${time}`];
}

function weekdayName(number: number): string {
  const name = DAYS[number] ?? '';
  return `${name.charAt(0).toUpperCase()}${name.slice(1)}`;
}

interface FieldRange {
  readonly low: number;
  readonly high: number;
  readonly names?: readonly string[];
}

function listOf(field: string, range: FieldRange): string {
  if (field === '*') return '*';
  return valuesOf(field, range)
    .map((value) => String(value).padStart(2, '0'))
    .join(',');
}

/** Returns the values of a field of a valid expression, in order. */
function valuesOf(field: string, { low, high, names = [] }: FieldRange): readonly number[] {
  const number = (text: string): number => {
    const index = names.indexOf(text.toLowerCase());
    return index === -1 ? Number(text) : index + low;
  };
  const values = field.split(',').flatMap((part) => {
    const [range = '', step = '1'] = part.split('/');
    const [from = '', to = from] = range.split('-');
    const first = range === '*' ? low : number(from);
    const last = range === '*' ? high : number(to);
    const count = Math.floor((last - first) / Number(step)) + 1;
    return Array.from({ length: count }, (_, index) => first + index * Number(step));
  });
  return [...new Set(values)].toSorted((one, two) => one - two);
}

/** Quotes a word for a POSIX shell. */
function shellWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Quotes a word for a command of a unit, which expands `%` and `$`. */
function unitWord(word: string): string {
  const escaped = word.replaceAll('%', '%%').replaceAll('$', '$$$$');
  return /^[\w@%+=:,./$-]+$/.test(escaped) ? escaped : JSON.stringify(escaped);
}
